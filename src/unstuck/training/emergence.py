"""When does a run emerge? Evaluate sparsely on the plateau, densely near the threshold, and interpolate (D.1).

Every step has a training loss, smoothed over a few steps; times the ratio of test to training loss at the last
evaluation it predicts the test loss. A full evaluation is asked for when that prediction comes near the threshold
and when it has passed it; the crossing lies between, and the logarithm of the loss is interpolated there.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

SMOOTHING = 0.2  # weight of the newest step: about five steps of memory
BEFORE, BEYOND = 1.5, 0.9  # of the threshold: where a full evaluation is wanted


@dataclass
class EmergenceWatch:
    """Decides when to evaluate in full, and finds where a falling loss crosses each threshold."""

    thresholds: tuple[float, ...]
    crossings: dict[str, float] = field(default_factory=dict)
    smooth: float | None = None  # log of the smoothed training loss
    ratio: float = 0.0  # log of test over smoothed training loss, at the last evaluation
    last: tuple[int, float] | None = None  # step and log loss before the crossing to come: of a full evaluation, if any
    asked_before: bool = False  # the evaluation ahead of the next threshold is done
    last_full: int = -1

    def __post_init__(self) -> None:
        self.thresholds = tuple(sorted(self.thresholds, reverse=True))

    @property
    def next_threshold(self) -> float | None:
        left = [t for t in self.thresholds if f"{t:g}" not in self.crossings]
        return left[0] if left else None

    @property
    def last_crossing(self) -> float | None:
        """The step of the last threshold, once all are crossed."""
        return max(self.crossings.values()) if self.thresholds and self.next_threshold is None else None

    def trained(self, train_loss: float) -> None:
        """Take one step's training loss."""
        value = math.log(max(train_loss, 1e-30))
        self.smooth = value if self.smooth is None else (1 - SMOOTHING) * self.smooth + SMOOTHING * value

    def wants_full(self, step: int) -> bool:
        """Is a full evaluation due after this step?"""
        threshold = self.next_threshold
        if threshold is None or self.smooth is None or step - self.last_full < 2:
            return False
        predicted = self.smooth + self.ratio - math.log(threshold)
        return predicted <= math.log(BEYOND) or (not self.asked_before and predicted <= math.log(BEFORE))

    def evaluated(self, step: int, test_loss: float, *, full: bool) -> None:
        """Take an evaluation of the measure that decides; only a full one can establish a crossing."""
        value = math.log(max(test_loss, 1e-30))
        if self.smooth is not None:
            self.ratio = value - self.smooth
        if full:
            self.asked_before, self.last_full = True, step
            while (threshold := self.next_threshold) is not None and value <= math.log(threshold):
                self.crossings[f"{threshold:g}"] = self._between(step, value, math.log(threshold))
                self.asked_before = False
        if full or not self.asked_before:  # after a full evaluation a small, noisy one does not replace it
            self.last = (step, value)

    def _between(self, step: int, value: float, threshold: float) -> float:
        if self.last is None or self.last[1] <= threshold:
            return float(step)
        before, above = self.last
        return before + (step - before) * (above - threshold) / (above - value)

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def restore(cls, state: dict[str, Any], thresholds: tuple[float, ...]) -> "EmergenceWatch":
        last = state["last"]
        return cls(**{**state, "thresholds": thresholds, "last": tuple(last) if last else None})
