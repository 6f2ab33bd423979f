"""A schedule of data diversity that gets a stuck learner moving: repeat data on the plateau, then repeat less and less.

Repetition makes the sparse pattern easier to find, and too much of it for too long is learnt by heart. So the schedule
raises repetition only when the loss has stopped falling, and lowers it, by a factor at a time, each time the learner
has mastered what it is shown; where the loss settles again at a lower repetition, it waits there for the next fall.
"""

import dataclasses
import math
from typing import Any

from pydantic import ValidationError

from unstuck.errors import BadInput
from unstuck.forecast.plateau import PlateauDetector, mean


class DiversitySchedule:
    """How much to repeat now, from how the loss behaves. Used like `ReduceLROnPlateau`:

        schedule = DiversitySchedule(most=0.9)
        for batch in ...:
            batch = draw(repetition=schedule.repetition)
            ...
            schedule.step(loss)

    `repetition` goes from 0 (all data diverse) to `most` and back, by `factor` at a time. A level is mastered when the
    smoothed loss has fallen to `mastered` of what it was on the plateau before; `floor` is the loss that cannot be
    avoided (0 for a task without noise). Repeated data can also be learnt by heart, so tell it the loss on clean data,
    `schedule.measured(loss)`, whenever you know it.
    """

    def __init__(
        self,
        most: float = 0.9,
        *,
        factor: float = 0.5,
        least: float = 0.05,
        mastered: float = 0.5,
        floor: float = 0.0,
        patience: int = 100,
        memory: int = 20,
    ) -> None:
        for name, value, low, high in (
            ("most", most, 0.0, math.inf),
            ("factor", factor, 0.0, 1.0),
            ("least", least, 0.0, math.inf),
            ("mastered", mastered, 0.0, 1.0),
        ):
            if not low < value < high:
                raise BadInput(
                    name, value, f"a number above {low:g}" + ("" if high == math.inf else f", below {high:g}")
                )
        if patience < 10 or memory < 1:
            raise BadInput("patience", patience, "at least 10 steps, with a memory of at least 1")
        self.most, self.factor, self.least, self.mastered, self.floor = most, factor, least, mastered, floor
        self.detector = PlateauDetector(least=patience)
        self.memory = memory
        self.repetition = 0.0
        self.stage = "diverse"  # then "repeating", then "done"
        self.plateau: float | None = None  # the loss on it
        self.smooth: float | None = None
        self.steps = 0
        self.changes: list[tuple[int, float]] = [(0, 0.0)]  # step and repetition from then on

    def step(self, loss: float) -> float:
        """Take the loss of a step; returns the repetition for the next."""
        if not math.isfinite(loss):
            return self.repetition
        self.steps += 1
        self.detector.add(loss)
        weight = 1 / min(self.memory, len(self.detector.values))
        self.smooth = loss if self.smooth is None else (1 - weight) * self.smooth + weight * loss
        if self.stage == "diverse" and self.detector.stands:
            self.plateau = mean(self.detector.values[-self.detector.least :])
            self.stage = "repeating"
            self._change(self.most)
        elif self.stage == "repeating" and self._is_mastered():
            lower = self.repetition * self.factor
            if lower < self.least:
                lower, self.stage = 0.0, "done"
            self._change(lower)
        return self.repetition

    def measured(self, clean: float) -> None:
        """Take the loss on clean data, without repetition: once that has fallen, all data are diverse again."""
        if self.stage == "repeating" and self._low(clean):
            self.stage = "done"
            self._change(0.0)

    def _is_mastered(self) -> bool:
        assert self.smooth is not None
        return len(self.detector.values) >= self.memory and self._low(self.smooth)

    def _low(self, loss: float) -> bool:
        assert self.plateau is not None
        return loss - self.floor <= self.mastered * (self.plateau - self.floor)

    def _change(self, repetition: float) -> None:
        self.repetition = repetition
        self.changes.append((self.steps, repetition))
        self.detector.reset()
        self.smooth = None

    def state_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        kept = {k: v for k, v in vars(self).items() if k != "detector"}
        return {**kept, "changes": [list(c) for c in self.changes], "values": list(self.detector.values)}

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
