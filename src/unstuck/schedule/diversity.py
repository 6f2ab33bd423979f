"""A schedule of data diversity that gets a stuck learner moving: repeat data on the plateau, until something gives.

Repetition makes the sparse pattern easier to find, and too much of it for too long is learnt by heart. What repetition
helps to find, attention, serves diverse data as well, and what is left to learn is learnt faster from those. So the
schedule repeats only while the learner is stuck: it waits until the loss has settled, and for its next fall, which is
the transition; then all data are diverse again. The loss on clean data tells best: that on repeated data also falls
when a shortcut is found that only repeated data have.
"""

import itertools
import math
import warnings
from collections.abc import Sequence
from numbers import Real
from statistics import median
from typing import Any

from unstuck.errors import BadInput
from unstuck.forecast.forecaster import Forecast
from unstuck.forecast.plateau import PlateauDetector, mean
from unstuck.scalars import is_whole, measure

NEAR = 0.5  # part of a plateau from which on its end is waited for
LATELY = 3  # measurements on clean data, at least, that are compared with those before
SURE = 4.0  # standard errors by which they must differ: they are looked at often
RECENT = 30  # measurements that their noise is told from
KEPT = 100  # times `patience`: losses that are looked back on


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _noise(losses: Sequence[float]) -> float:
    """Standard deviation of a loss about its level, from how each differs from the one before."""
    if len(losses) <= LATELY:
        return 0.0
    return 1.4826 * median(abs(b - a) for a, b in itertools.pairwise(losses)) / math.sqrt(2)


class DiversitySchedule:
    """How much to repeat now, from how the loss behaves. Used like `ReduceLROnPlateau`:

        schedule = DiversitySchedule(most=0.5)
        for batch in ...:
            batch = draw(repetition=schedule.repetition)
            ...
            schedule.step(loss)

    Once an optimiser step, not once an epoch: `patience` and forecasts count steps.

    `repetition` is 0 (all data diverse), and on a plateau `most`. It is 0 again once the loss, which had settled at
    that repetition, has fallen by `fall` of its value (the transition), or after `longest` steps that brought nothing
    (200 `patience`). If the learner gets stuck once more, before its loss has come to `mastered` of the first plateau,
    the schedule repeats again: as much as before on a plateau that is lower by `fall`, where repetition has helped;
    else `factor` as much, but not less than `least`. Losses are above `floor`, which is what cannot be avoided: 0 for
    a task without noise. A learner that has arrived at a higher one looks stuck; so does one whose loss falls by less
    than 2% in `patience` steps, and `patience` is to be chosen accordingly. One that meets no plateau has arrived at
    the square of `mastered` of where its first `patience` steps had brought it. Where losses are too noisy to see a
    fall of half of `fall` in that time, it takes longer to call a learner stuck.

    The loss on clean data, without repetition, tells the transition best: `schedule.measured(loss)`, every so many
    steps, also while nothing is repeated, since they are compared with those before. From the third value after it
    began to repeat, a fall among them ends repetition; from the sixth on the loss it is trained on no longer does.
    Measure it on the same sequences each time: the noisier it is, the more values it takes to tell a fall from chance.

    A learner whose loss stands still may be on its way: tell the schedule what a `Forecaster` or a `Watch` says,
    `schedule.forecasted(watch.forecast())`, and it does not begin to repeat where half of the time is over.
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
        memory: int | None = None,
        longest: int | None = None,
    ) -> None:
        for name, value, low, high in (
            ("most", most, 0.0, math.inf),
            ("factor", factor, 0.0, 1.0),
            ("least", least, 0.0, math.inf),
            ("fall", fall, 0.0, 1.0),
            ("mastered", mastered, 0.0, 1.0),
        ):
            if not _number(value) or not low < value < high:
                raise BadInput(
                    name, value, f"a number above {low:g}" + ("" if high == math.inf else f", below {high:g}")
                )
        if not _number(floor) or not math.isfinite(floor):
            raise BadInput("floor", floor, "the loss that cannot be avoided, a number")
        if not is_whole(patience) or patience < 10:
            raise BadInput("patience", patience, "a whole number of steps, at least 10")
        memory = min(20, patience) if memory is None else memory
        if not is_whole(memory) or not 1 <= memory <= patience:
            raise BadInput("memory", memory, f"a whole number of steps, from 1 to the patience of {patience}")
        if longest is not None and not (is_whole(longest) and longest >= patience):
            raise BadInput("longest", longest, f"a whole number of steps, at least the patience of {patience}")
        # Python's own numbers, whatever was given: a checkpoint of them can be loaded anywhere.
        self.most, self.factor, self.least = float(most), float(factor), float(least)
        self.fall, self.mastered, self.floor = float(fall), float(mastered), float(floor)
        self.memory, self.longest = int(memory), int(longest or 2 * KEPT * patience)
        self.detector = PlateauDetector(least=int(patience), blind=self.fall / 2)
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
        values = self.detector.values
        self.detector.add(loss)
        if len(values) > 2 * KEPT * self.detector.least:
            del values[: -KEPT * self.detector.least]
        if len(values) >= self.memory:
            self._judge(mean(values[-self.memory :]))
        return self.repetition

    def _judge(self, now: float) -> None:
        if self.start is None and self.steps >= self.detector.least:
            self.start = now
        if self.stage == "repeating":
            by_training = len(self.clean) < 2 * LATELY and self._fallen_in_training(now)
            if by_training or self.since >= self.longest:
                self._change(0.0, "released")
            elif self._time_to_look() and self.detector.stands:
                self.settled = self._level()
        elif self._learnt(now):
            self.stage = "done"
        elif self.since >= self.wait and self._time_to_look() and self.detector.stuck:
            self._stuck(self._level())

    def _time_to_look(self) -> bool:
        """A few times in `patience` steps: the detector goes through all values."""
        return self.since % max(1, self.detector.least // 10) == 0

    def _above(self, loss: float) -> bool:
        """Is a loss above the floor? One below it would make every plateau look mastered."""
        if loss < 0 and not self.warned:
            self.warned = True
            told = f"{loss + self.floor:g} is below floor = {self.floor:g}"
            warnings.warn(f"a loss of {told}; such losses are not counted: set floor lower", UserWarning, stacklevel=3)
        return loss >= 0

    def _level(self) -> float:
        """Where the loss stands: without the first half of `patience`, in which it may have come down."""
        return mean(self.detector.values[-self._many :])

    @property
    def _many(self) -> int:
        """Losses that a level is the mean of."""
        return max(self.memory, self.detector.least // 2)

    def _stuck(self, level: float) -> None:
        self.plateau = level if self.plateau is None else self.plateau
        if self.steps < self.expected:  # its end is near
            return
        if self.last is not None and not self._fallen(level, self.last):
            self.next = max(self.next * self.factor, min(self.least, self.next))
        self.last = level
        stood = [clean for step, clean in self.measurements if step > self.steps - len(self.detector.lately())]
        stood = stood if len(stood) >= LATELY else self.clean[-LATELY:]
        known = len(stood) >= LATELY
        self.last_clean, self.last_many = (median(stood), len(stood)) if known else (None, 0)
        self._change(self.next, "repeating")

    def _learnt(self, loss: float) -> bool:
        if self.plateau is not None:
            return loss <= self.mastered * self.plateau
        return self.start is not None and loss <= self.mastered**2 * self.start

    def _fallen(self, now: float, before: float, chance: float = 0.0) -> bool:
        return now < before - max(self.fall * before, chance)

    def _fallen_in_training(self, now: float) -> bool:
        """Has the loss that it is trained on fallen from where it had settled, by more than its noise, or by half?"""
        if self.settled is None or not self._fallen(now, self.settled):
            return False
        noise = _noise(self.detector.values[-self.detector.least :])
        chance = self._chance(noise, self.memory, self._many)
        return self._fallen(now, self.settled, min(chance, 0.5 * self.settled))

    def measured(self, clean: Any) -> None:
        """Take the loss on clean data. Repetition may first raise it; all data are diverse again once it has fallen
        from there to about the level it had before or below, or from that level itself."""
        clean = measure("clean", clean) - self.floor
        if not math.isfinite(clean) or self.stage == "done" or not self._above(clean):
            return
        self.clean.append(clean)
        self.measurements = [*self.measurements[1 - RECENT :], (self.steps, clean)]
        if self.stage != "repeating":
            del self.clean[:-LATELY]
            return
        if self.last_clean is None:
            self._begin_comparing()
            return
        noise = _noise([clean for _, clean in self.measurements])
        enough = math.ceil((self._chance(noise, 1) / (self.fall * self.last_clean)) ** 2) if self.last_clean else 0
        # A deep fall shows in a few values, however noisy; that one of `fall` is not hidden takes more.
        if any(self._transition(many, noise) for many in sorted({LATELY, max(LATELY, enough)})):
            self._change(0.0, "released")

    def _begin_comparing(self) -> None:
        """Of the time before repetition too little is known on clean data. So what is seen of them first is compared
        with, or the loss of the plateau in training, whichever is lower: repetition may have raised the one, and
        dropout the other."""
        if len(self.clean) == LATELY and self.last is not None:
            first = median(self.clean)
            self.last_clean, self.last_many = min(first, self.last), LATELY
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
        if len(before) < LATELY or lately > (1 + self.fall) * self.last_clean:
            return False
        return self._fallen(lately, median(before), self._chance(noise, many, len(before)))

    def _chance(self, noise: float, *many: int) -> float:
        """By how much medians of so many losses may differ by chance; means do so less."""
        return SURE * 1.25 * noise * math.sqrt(sum(1 / n for n in many))

    def forecasted(self, forecast: Forecast) -> None:
        """Take a forecast of the first plateau's end: one that is near is waited for, until it is overdue."""
        if not isinstance(forecast, Forecast):
            raise BadInput("forecast", forecast, "what a Forecaster or a Watch forecasts")
        near = forecast.sign and forecast.elapsed is not None and forecast.elapsed >= NEAR
        late = forecast.high if near and forecast.high is not None else forecast.step
        self.expected = self.steps + math.ceil(late - forecast.step) if self.stage == "diverse" else 0

    def _change(self, repetition: float, stage: str) -> None:
        self.wait = self.since if stage == "released" else 0  # it gets as long as repeating took
        self.repetition, self.stage, self.settled, self.clean = repetition, stage, None, []
        self.since, self.expected = 0, 0
        self.changes.append((self.steps, repetition))
        self.detector.reset()

    def state_dict(self) -> dict[str, Any]:
        """Where it is, in plain values, for a checkpoint; settings are those of the schedule that loads it."""
        kept = {name: getattr(self, name) for name in (*PROGRESS, *AMOUNTS, *LEVELS)}
        lists = {"clean": list(self.clean), "changes": [list(c) for c in self.changes]}
        lists["measurements"] = [list(m) for m in self.measurements]
        return {**kept, **lists, "values": list(self.detector.values), "most": self.most, "floor": self.floor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; where `most` or `floor` are other ones now, with what was kept in their terms."""
        wanted = set(self.state_dict())
        if not isinstance(state, dict) or not wanted <= set(state) or state["stage"] not in STAGES:
            raise BadInput("state", sorted(state) if isinstance(state, dict) else state, "what state_dict() gave")
        if not _number(state["most"]) or not state["most"] > 0:
            raise BadInput("most of the state", state["most"], "a number above 0, as state_dict() gave it")
        try:
            more, up = self.most / state["most"], state["floor"] - self.floor
            kept: dict[str, Any] = {name: state[name] if name == "stage" else int(state[name]) for name in PROGRESS}
            kept |= {name: state[name] * more for name in AMOUNTS}
            kept |= {name: None if state[name] is None else max(0.0, state[name] + up) for name in LEVELS}
            kept["clean"] = [max(0.0, x + up) for x in state["clean"]]
            kept["measurements"] = [(int(step), max(0.0, float(clean) + up)) for step, clean in state["measurements"]]
            kept["changes"] = [(int(step), float(level)) for step, level in state["changes"]]
            values = [max(0.0, x + up) for x in state["values"]]
        except (OverflowError, TypeError, ValueError) as e:
            raise BadInput("state", state, f"what state_dict() gave ({e})") from e
        vars(self).update(kept)
        self.detector.values = values


STAGES = ("diverse", "repeating", "released", "done")
AMOUNTS = ("repetition", "next")
LEVELS = ("start", "plateau", "last", "last_clean", "settled")
PROGRESS = ("stage", "last_many", "expected", "wait", "steps", "since")
