"""A repetition schedule that gets a stuck learner moving: repeat data on the plateau, until the loss falls.

Repetition makes the sparse pattern easier to find, but too much of it for too long is memorised. The attention that
repetition helps to find serves diverse data as well, and the rest is learnt faster from these. So the schedule repeats
only while the learner is stuck: it waits until the loss has settled, and then for its next fall, the transition; after
that all data are diverse again. The loss on clean data shows the transition best: the loss on repeated data also falls
when a shortcut is found that only repeated data have.
"""

import itertools
import math
import sys
import warnings
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from unstuck.errors import BadInput
from unstuck.forecast import Forecast
from unstuck.forecast.plateau import STD_PER_MAD, PlateauTest, Trend
from unstuck.scalars import measure, real, whole

WAIT_FROM = 0.5  # fraction of a plateau from which on its predicted end is waited for
MIN_MEASUREMENTS = 3  # on clean data, that are compared with those before: one or two may be chance
STANDARD_ERRORS = 4.0  # by which they must differ; more than usual, since they are compared often
NOISE_WINDOW = 30  # measurements from which their noise is estimated
HISTORY = 100  # times `patience`: losses that are kept
STD_OF_MEDIAN = 1.25  # standard error of a median over that of a mean, for a normal distribution


def _inside(name: str, value: Any, low: float, high: float) -> float:
    """A number between two bounds, both excluded; Python's own, so that a checkpoint of it can be loaded anywhere."""
    allowed = f"a number above {low:g}" + ("" if high == math.inf else f", below {high:g}")
    found = real(name, value, low, high, allowed)
    if found in (low, high):
        raise BadInput(name, value, allowed)
    return found


def _noise(losses: Sequence[float]) -> float:
    """Standard deviation of a loss about its level, from the differences of neighbours."""
    if len(losses) <= MIN_MEASUREMENTS:
        return 0.0
    return STD_PER_MAD * median(abs(b - a) for a, b in itertools.pairwise(losses)) / math.sqrt(2)


class DiversitySchedule:
    """How much to repeat now, from the loss. Used like `ReduceLROnPlateau`:

        schedule = DiversitySchedule(most=0.5)
        for batch in ...:
            batch = draw(repetition=schedule.repetition)
            ...
            schedule.step(loss)

    Call `step` once an optimiser step, not once an epoch: `patience` and forecasts count steps.

    `repetition` is 0 (all data diverse), and `most` on a plateau. It is 0 again once the loss, which had settled at
    that repetition, has fallen by `fall` of its value (the transition), or after `longest` steps without a fall (200
    `patience`). If the learner gets stuck again before its loss has reached `mastered` of the first plateau, the
    schedule repeats again: as much as before if the new plateau is lower by `fall`, since repetition has helped;
    otherwise `factor` as much, but not less than `least`.

    A learner is stuck if its loss is flat to within `bound`, a fraction of the loss a doubling of steps, by a
    `PlateauTest` that is repeated from `patience` steps on; with a noisy loss that takes longer. At twice the bound a
    healthy language model, whose loss falls by 3% a doubling, is called stuck. `confidence` is that of one such test.
    It is high since the test is repeated; at 0.99 a plateau needs a third fewer steps, and more healthy runs are called
    stuck.

    Losses count above `floor`, the loss that cannot be avoided: 0 for a task without noise. If `floor` is too low, a
    learner that has finished looks stuck. A learner without a plateau has finished at the square of `mastered` of its
    loss after `patience` steps.

    The loss on clean data, without repetition, shows the transition best. Pass it to `schedule.measured(loss)` every
    few steps, also while nothing is repeated, since later values are compared with earlier ones. From the third value
    after repetition began, a fall among them ends repetition; from the sixth on the training loss no longer does.
    Measure it on the same sequences each time: the noisier it is, the more values are needed to see a fall.

    A learner whose loss stands still may be about to leave its plateau. With `schedule.forecasted(watch.forecast())`
    the schedule does not begin to repeat if half of the plateau has elapsed.
    """

    def __init__(
        self,
        most: float = 0.5,
        *,
        factor: float = 0.5,
        least: float = 0.05,
        fall: float = 0.15,
        mastered: float = 0.2,
        floor: float = 0.0,
        patience: int = 100,
        bound: float = 0.02,
        confidence: float = 0.999,
        memory: int | None = None,
        longest: int | None = None,
    ) -> None:
        self.most = _inside("most", most, 0.0, math.inf)
        self.factor = _inside("factor", factor, 0.0, 1.0)
        self.least = _inside("least", least, 0.0, math.inf)
        self.fall = _inside("fall", fall, 0.0, 1.0)
        self.mastered = _inside("mastered", mastered, 0.0, 1.0)
        largest = sys.float_info.max
        self.floor = real("floor", floor, -largest, largest, "the loss that cannot be avoided, a number")
        most_steps = sys.maxsize
        patience = whole("patience", patience, 10, most_steps, "a whole number of steps, at least 10")
        memory = min(20, patience) if memory is None else memory
        longest = 2 * HISTORY * patience if longest is None else longest
        steps = f"a whole number of steps, from 1 to the patience of {patience}"
        self.memory = whole("memory", memory, 1, patience, steps)
        steps = f"a whole number of steps, at least the patience of {patience}"
        self.longest = whole("longest", longest, patience, most_steps, steps)
        self.patience, self.test = patience, PlateauTest(bound, confidence)
        self.repetition = 0.0
        self.stage = "diverse"  # "repeating" on a plateau, "released" after the transition, "done" when mastered
        self.next = self.most  # how much to repeat on the next plateau
        # Losses from here on are above `floor`.
        self.start: float | None = None  # after the first `patience` steps
        self.plateau: float | None = None  # on the first plateau
        self.last: float | None = None  # on the last one
        self.last_clean: float | None = None  # on clean data there
        self.last_many = 0  # measurements that this is the median of
        self.settled: float | None = None  # that it came to rest at with this repetition
        self.values: list[float] = []  # the last ones, in this stage
        self.clean: list[float] = []  # on clean data, in this stage
        self.measurements: list[tuple[int, float]] = []  # the last of them, in whatever stage, each with its step
        self.warned = False
        self.expected = 0  # step until which the plateau's end, forecast to be near, is waited for
        self.wait = 0  # steps before it may be called stuck again
        self.steps, self.since = 0, 0  # in all, and in this stage
        self.changes: list[tuple[int, float]] = [(0, 0.0)]  # step and repetition from then on

    def step(self, loss: Any) -> float:
        """Take the loss of a step, a number or a tensor of one; returns the repetition for the next."""
        loss = measure("loss", loss) - self.floor
        if not math.isfinite(loss) or self.stage == "done" or not self._above(loss):
            return self.repetition
        self.steps, self.since = self.steps + 1, self.since + 1
        self.values.append(loss)
        if len(self.values) > 2 * HISTORY * self.patience:
            del self.values[: -HISTORY * self.patience]
        if len(self.values) >= self.memory:
            self._judge(fmean(self.values[-self.memory :]))
        return self.repetition

    def _judge(self, now: float) -> None:
        if self.start is None and self.steps >= self.patience:
            self.start = now
        if self.stage == "repeating":
            by_training = len(self.clean) < 2 * MIN_MEASUREMENTS and self._fallen_in_training(now)
            if by_training or self.since >= self.longest:
                self._change(0.0, "released")
            elif self._time_to_look() and not self._trend().falls:
                self.settled = self._level()
        elif self._learnt(now):
            self.stage = "done"
        elif self.since >= self.wait and self._time_to_look() and (trend := self._trend()).is_flat:
            self._stuck(self._level(), len(self.values) - trend.start)

    def _time_to_look(self) -> bool:
        """After `patience` steps of this stage, and then ten to twenty times a doubling of its steps."""
        every = 1 << max(0, (self.since // 10).bit_length() - 1)
        return self.since == self.patience or (self.since > self.patience and self.since % every == 0)

    def _trend(self) -> Trend:
        """How the loss changes, a doubling of the steps of this stage."""
        return self.test.trend(range(self.since - len(self.values) + 1, self.since + 1), self.values)

    def _above(self, loss: float) -> bool:
        """Is a loss above the floor? A loss below it would make every plateau look mastered."""
        if loss < 0 and not self.warned:
            self.warned = True
            below = f"{loss + self.floor:g} is below floor = {self.floor:g}"
            warnings.warn(f"a loss of {below}; such losses are not counted: set floor lower", UserWarning, stacklevel=3)
        return loss >= 0

    def _level(self) -> float:
        """The present level of the loss, without the first half of `patience`, in which it may have fallen to it."""
        return fmean(self.values[-self._many :])

    @property
    def _many(self) -> int:
        """Losses that a level is the mean of."""
        return max(self.memory, self.patience // 2)

    def _stuck(self, level: float, many: int) -> None:
        """Repeat, for a loss that stood at this level for so many steps, unless its end is near."""
        self.plateau = level if self.plateau is None else self.plateau
        if self.steps < self.expected:  # its end is near
            return
        if self.last is not None and not self._fallen(level, self.last):
            self.next = max(self.next * self.factor, min(self.least, self.next))
        self.last = level
        stood = [clean for step, clean in self.measurements if step > self.steps - many]
        stood = stood if len(stood) >= MIN_MEASUREMENTS else self.clean[-MIN_MEASUREMENTS:]
        known = len(stood) >= MIN_MEASUREMENTS
        self.last_clean, self.last_many = (median(stood), len(stood)) if known else (None, 0)
        self._change(self.next, "repeating")

    def _learnt(self, loss: float) -> bool:
        if self.plateau is not None:
            return loss <= self.mastered * self.plateau
        return self.start is not None and loss <= self.mastered**2 * self.start

    def _fallen(self, now: float, before: float, chance: float = 0.0) -> bool:
        return now < before - max(self.fall * before, chance)

    def _fallen_in_training(self, now: float) -> bool:
        """Has the training loss fallen from the level where it had settled, by more than its noise, or by half?"""
        if self.settled is None or not self._fallen(now, self.settled):
            return False
        noise = _noise(self.values[-self.patience :])
        chance = self._chance(noise, self.memory, self._many)
        return self._fallen(now, self.settled, min(chance, 0.5 * self.settled))

    def measured(self, clean: Any) -> None:
        """Take the loss on clean data. Repetition may first raise it. All data are diverse again once it has fallen
        from there to about its level before repetition, or has fallen from that level itself."""
        clean = measure("clean", clean) - self.floor
        if not math.isfinite(clean) or self.stage == "done" or not self._above(clean):
            return
        self.clean.append(clean)
        self.measurements = [*self.measurements[1 - NOISE_WINDOW :], (self.steps, clean)]
        if self.stage != "repeating":
            del self.clean[:-MIN_MEASUREMENTS]
            return
        if self.last_clean is None:
            self._begin_comparing()
            return
        noise = _noise([clean for _, clean in self.measurements])
        needed = math.ceil((self._chance(noise, 1) / (self.fall * self.last_clean)) ** 2) if self.last_clean else 0
        # A deep fall shows in a few noisy values; one of just `fall` needs more of them.
        if any(self._transition(many, noise) for many in sorted({MIN_MEASUREMENTS, max(MIN_MEASUREMENTS, needed)})):
            self._change(0.0, "released")

    def _begin_comparing(self) -> None:
        """Too little was measured on clean data before repetition. So later values are compared with the first ones
        after it began, or with the training loss of the plateau, whichever is lower: repetition may have raised the
        former, and dropout the latter."""
        if len(self.clean) == MIN_MEASUREMENTS and self.last is not None:
            first = median(self.clean)
            self.last_clean, self.last_many = min(first, self.last), MIN_MEASUREMENTS
            if first <= self.mastered * self.last:
                self._change(0.0, "released")

    def _transition(self, many: int, noise: float) -> bool:
        """Have the last so many measurements on clean data fallen, by more than their noise?"""
        before, now = self.clean[:-many], self.clean[-many:]
        if len(now) < many or self.last_clean is None:
            return False
        lately = median(now)
        if self._fallen(lately, self.last_clean, self._chance(noise, many, self.last_many)):
            return True
        if len(before) < MIN_MEASUREMENTS or lately > (1 + self.fall) * self.last_clean:
            return False
        return self._fallen(lately, median(before), self._chance(noise, many, len(before)))

    def _chance(self, noise: float, *many: int) -> float:
        """By how much medians of so many losses may differ by chance; means differ less."""
        return STANDARD_ERRORS * STD_OF_MEDIAN * noise * math.sqrt(sum(1 / n for n in many))

    def forecasted(self, forecast: Forecast) -> None:
        """Take a forecast of the first plateau. If the end is near, it is waited for until the interval has passed."""
        if not isinstance(forecast, Forecast):
            raise BadInput("forecast", forecast, "what a Forecaster or a Watch forecasts")
        interval = forecast.interval() if forecast.notes.signal_present else None
        near = interval is not None and (forecast.elapsed or 0.0) >= WAIT_FROM
        wait = math.ceil(interval[1] - int(forecast.now)) if interval and near else 0
        self.expected = self.steps + wait if self.stage == "diverse" else 0

    def _change(self, repetition: float, stage: str) -> None:
        self.wait = self.since if stage == "released" else 0  # it gets as long as repeating took
        self.repetition, self.stage, self.settled, self.clean = repetition, stage, None, []
        self.since, self.expected = 0, 0
        self.changes.append((self.steps, repetition))
        self.values = []

    def state_dict(self) -> dict[str, Any]:
        """The state in plain values, for a checkpoint; settings are those of the schedule that loads it."""
        kept = {name: getattr(self, name) for name in (*PROGRESS, *AMOUNTS, *LEVELS)}
        lists = {"clean": list(self.clean), "changes": [list(c) for c in self.changes]}
        lists["measurements"] = [list(m) for m in self.measurements]
        return {**kept, **lists, "values": list(self.values), "most": self.most, "floor": self.floor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; where `most` or `floor` differ now, what was kept is converted to them."""
        if not isinstance(state, dict) or not set(self.state_dict()) <= set(state) or state["stage"] not in STAGES:
            raise BadInput("state", sorted(state) if isinstance(state, dict) else state, "what state_dict() gave")
        most = _inside("most of the state_dict()", state["most"], 0.0, math.inf)
        try:
            kept = self._converted(state, self.most / most, state["floor"] - self.floor)
        except (OverflowError, TypeError, ValueError) as e:
            raise BadInput("state", state, f"what state_dict() gave ({e})") from e
        vars(self).update(kept)

    def _converted(self, state: dict[str, Any], more: float, up: float) -> dict[str, Any]:
        """What was kept, with amounts of repetition times `more` and levels of the loss higher by `up`."""

        def level(x: float) -> float:
            return max(0.0, x + up)

        kept = {name: state[name] if name == "stage" else int(state[name]) for name in PROGRESS}
        kept |= {name: state[name] * more for name in AMOUNTS}
        kept |= {name: None if state[name] is None else level(state[name]) for name in LEVELS}
        kept |= {name: [level(x) for x in state[name]] for name in ("clean", "values")}
        kept["measurements"] = [(int(step), level(float(clean))) for step, clean in state["measurements"]]
        kept["changes"] = [(int(step), float(amount)) for step, amount in state["changes"]]
        return kept


STAGES = ("diverse", "repeating", "released", "done")
AMOUNTS = ("repetition", "next")
LEVELS = ("start", "plateau", "last", "last_clean", "settled")
PROGRESS = ("stage", "last_many", "expected", "wait", "steps", "since")
