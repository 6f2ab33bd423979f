"""A schedule of data diversity that gets a stuck learner moving: repeat data on the plateau, until something gives.

Repetition makes the sparse pattern easier to find, and too much of it for too long is learnt by heart. What repetition
helps to find, attention, serves diverse data as well, and what is left to learn is learnt faster from those. So the
schedule repeats only while the learner is stuck: it waits until the loss has settled, and for its next fall, which is
the transition; then all data are diverse again. The loss on clean data tells best: that on repeated data also falls
when a shortcut is found that only repeated data have.
"""

import dataclasses
import math
from statistics import median
from typing import Any

from pydantic import ValidationError

from unstuck.errors import BadInput
from unstuck.forecast.forecaster import Forecast
from unstuck.forecast.plateau import PlateauDetector, mean

NEAR = 0.5  # part of a plateau from which on its end is waited for
LATELY = 3  # measurements on clean data that are compared with those before


class DiversitySchedule:
    """How much to repeat now, from how the loss behaves. Used like `ReduceLROnPlateau`:

        schedule = DiversitySchedule(most=0.5)
        for batch in ...:
            batch = draw(repetition=schedule.repetition)
            ...
            schedule.step(loss)

    `repetition` is 0 (all data diverse) or, on a plateau, `most`. It is 0 again once the loss, which had settled at
    that repetition, has fallen by `fall` of its value (the transition). That is the loss on clean data, if you tell it
    now and then, `schedule.measured(loss)`; without, it is the loss you train on. If the learner gets stuck once more,
    before its loss has come to `mastered` of the first plateau, the schedule repeats again: as much as before on a
    plateau that is lower by `fall`, where repetition has helped; else `factor` as much as the time before, never less
    than `least`. `floor` is the loss that cannot be avoided (0 for a task without noise).

    A learner whose loss stands still may be on its way: tell the schedule what a `Forecaster` or a `Watch` says,
    `schedule.forecasted(watch.forecast())`, and it does not repeat where half of the plateau is over.
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
        memory: int = 20,
    ) -> None:
        for name, value, low, high in (
            ("most", most, 0.0, math.inf),
            ("factor", factor, 0.0, 1.0),
            ("least", least, 0.0, math.inf),
            ("fall", fall, 0.0, 1.0),
            ("mastered", mastered, 0.0, 1.0),
        ):
            if not low < value < high:
                raise BadInput(
                    name, value, f"a number above {low:g}" + ("" if high == math.inf else f", below {high:g}")
                )
        if patience < 10 or not 1 <= memory <= patience:
            raise BadInput("patience", patience, "at least 10 steps, with a memory of at least 1 and at most that")
        self.most, self.factor, self.least = most, factor, least
        self.fall, self.mastered, self.floor = fall, mastered, floor
        self.detector = PlateauDetector(least=patience)
        self.memory = memory
        self.repetition = 0.0
        self.stage = "diverse"  # "repeating" on a plateau, "released" after the transition, "done" when mastered
        self.next = most  # how much to repeat on the next plateau
        self.plateau: float | None = None  # the loss on the first plateau
        self.last: float | None = None  # the loss on the last one
        self.settled: float | None = None  # the loss that it came to rest at with this repetition
        self.clean: list[float] = []  # losses on clean data with this repetition
        self.near = False  # the end of the plateau, by forecast
        self.wait = 0  # steps before it may be called stuck again
        self.steps = 0
        self.changes: list[tuple[int, float]] = [(0, 0.0)]  # step and repetition from then on

    def step(self, loss: float) -> float:
        """Take the loss of a step; returns the repetition for the next."""
        if not math.isfinite(loss) or self.stage == "done":
            return self.repetition
        self.steps += 1
        values = self.detector.values
        self.detector.add(loss)
        if len(values) < self.memory:
            return self.repetition
        now = mean(values[-self.memory :])
        if self.stage == "repeating":
            if self.clean:  # which says more; see `measured`
                pass
            elif self.settled is not None and self._fallen(now, self.settled):
                self._change(0.0, "released")
            elif self.detector.stands:
                self.settled = mean(values[-self.detector.least :])
        elif self.stage == "released" and self._learnt(now):
            self.stage = "done"
        elif len(values) >= self.wait and not self.near and self.detector.stands:
            self._stuck(mean(values[-self.detector.least :]))
        return self.repetition

    def _stuck(self, level: float) -> None:
        if self.last is None:
            self.plateau = level
        elif not self._fallen(level, self.last):
            self.next = max(self.next * self.factor, min(self.least, self.next))
        self.last = level
        self._change(self.next, "repeating")

    def _learnt(self, loss: float) -> bool:
        return self.plateau is not None and loss - self.floor <= self.mastered * (self.plateau - self.floor)

    def _fallen(self, now: float, before: float) -> bool:
        return now - self.floor < (1 - self.fall) * (before - self.floor)

    def measured(self, clean: float) -> None:
        """Take the loss on clean data, without repetition: once that has fallen, all data are diverse again."""
        if self.stage != "repeating" or not math.isfinite(clean):
            return
        self.clean.append(clean)
        before, lately = self.clean[:-LATELY], self.clean[-LATELY:]
        if len(before) >= LATELY and self._fallen(mean(lately), median(before)):
            self._change(0.0, "released")

    def forecasted(self, forecast: Forecast) -> None:
        """Take a forecast of the plateau's end: one that is near is waited for."""
        self.near = forecast.sign and forecast.elapsed is not None and forecast.elapsed >= NEAR

    def _change(self, repetition: float, stage: str) -> None:
        self.wait = len(self.detector.values) if stage == "released" else 0  # it gets as long as repeating took
        self.repetition, self.stage, self.settled, self.clean = repetition, stage, None, []
        self.changes.append((self.steps, repetition))
        self.detector.reset()

    def state_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        kept = {k: v for k, v in vars(self).items() if k != "detector"}
        return {
            **kept,
            "clean": list(self.clean),
            "changes": [list(c) for c in self.changes],
            "values": list(self.detector.values),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if name == "values":
                self.detector.values = list(value)
            elif name == "changes":
                self.changes = [(int(step), float(level)) for step, level in value]
            elif name in vars(self):
                setattr(self, name, value)


def repeating(task: Any, key: str, repetition: float) -> Any:
    """The task with `repetition` more of p or B than it has itself; whole where it must be."""
    if not hasattr(task, key):
        raise BadInput("schedule.key", key, f"a setting of the task, which has {', '.join(vars(task))}")
    now = getattr(task, key)
    value = now + (round(repetition) if isinstance(now, int) and not isinstance(now, bool) else repetition)
    try:
        return dataclasses.replace(task, **{key: value})
    except (ValidationError, ValueError) as e:
        raise BadInput("schedule.most", repetition, f"such that the task can have {key} = {value:g}") from e
