"""When does a run emerge? Evaluate sparsely on the plateau, densely near the threshold, and interpolate (D.1).

Every step has a training loss, smoothed over a few steps; times the ratio of test to training loss at the last
evaluation it predicts the test loss. A full evaluation is asked for when that prediction comes near the threshold
and when it has passed it; the crossing lies between, and the logarithm of the loss is interpolated there.

An accuracy rises, and has chance to reckon with: a batch of 32 says little, so it is smoothed for longer, and two full
evaluations in a row must reach the threshold; the crossing lies just before the first of them.
"""

import itertools
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from unstuck.spec import RunSpec

SMOOTHING = 0.2  # weight of the newest step: about five steps of memory
BEFORE, BEYOND = 1.5, 0.9  # of the threshold: where a full evaluation is wanted
SMOOTHING_ACCURACY = 0.05  # about twenty steps of memory
NEAR = 0.95  # of the threshold of an accuracy: where a full evaluation is wanted
SMALL = 0.2  # weight of a small evaluation's ratio of test to training accuracy
GAP, GAP_GROWTH = 40, 0.02  # full evaluations of an accuracy are so many steps apart, or this part of the steps so far


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


@dataclass
class RisingWatch:
    """The same for an accuracy, which rises through its thresholds."""

    thresholds: tuple[float, ...]
    crossings: dict[str, float] = field(default_factory=dict)
    smooth: float | None = None  # training accuracy
    ratio: float = 1.0  # of test to smoothed training accuracy
    seen: list[tuple[int, float, bool]] = field(default_factory=list)  # step, accuracy, whether in full
    probe: int = 64  # sequences of a small evaluation

    def __post_init__(self) -> None:
        self.thresholds = tuple(sorted(self.thresholds))
        self.seen = [(step, value, full) for step, value, full in self.seen]  # JSON has no tuples

    @property
    def next_threshold(self) -> float | None:
        left = [t for t in self.thresholds if f"{t:g}" not in self.crossings]
        return left[0] if left else None

    @property
    def last_crossing(self) -> float | None:
        """The step of the last threshold, once all are crossed."""
        return max(self.crossings.values()) if self.thresholds and self.next_threshold is None else None

    def trained(self, accuracy: float) -> None:
        """Take one step's training accuracy."""
        old = accuracy if self.smooth is None else self.smooth
        self.smooth = (1 - SMOOTHING_ACCURACY) * old + SMOOTHING_ACCURACY * accuracy

    def wants_full(self, step: int) -> bool:
        """Is a full evaluation due after this step? Small ones, a few percent apart, bound the crossing from below."""
        threshold = self.next_threshold
        if threshold is None or self.smooth is None:
            return False
        whole = [(s, value) for s, value, full in self.seen if full]
        last, value = whole[-1] if whole else (-GAP, 0.0)
        if step - last < max(GAP, GAP_GROWTH * step):
            return False
        return value >= threshold or self.smooth * self.ratio >= NEAR * threshold

    def evaluated(self, step: int, accuracy: float, *, full: bool) -> None:
        """Take an evaluation of the measure that decides; only full ones can establish a crossing."""
        if self.smooth:  # a full evaluation is believed, a small one only in part
            self.ratio += (1.0 if full else SMALL) * (accuracy / self.smooth - self.ratio)
        self.seen.append((step, accuracy, full))
        while (threshold := self.next_threshold) is not None:
            crossing = self._crossing(threshold)
            if crossing is None:
                return
            self.crossings[f"{threshold:g}"] = crossing

    def _crossing(self, threshold: float) -> float | None:
        """Where the accuracy first reached a threshold and still did at the next full evaluation."""
        whole = [(step, value) for step, value, full in self.seen if full]
        for (step, value), (_, following) in itertools.pairwise(whole):
            if min(value, following) >= threshold:
                luck = 2 * math.sqrt(threshold * (1 - threshold) / self.probe)  # a small one must be clearly below
                below = [(s, v) for s, v, full in self.seen if s < step and v < threshold - (0 if full else luck)]
                return _interpolated(below[-1], (step, value), threshold) if below else float(self.seen[0][0])
        return None

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def restore(cls, state: dict[str, Any], thresholds: tuple[float, ...]) -> "RisingWatch":
        return cls(**{**state, "thresholds": thresholds})


def _interpolated(before: tuple[int, float], after: tuple[int, float], threshold: float) -> float:
    """The step between two at which the logarithm of the accuracy passes that of the threshold."""
    low, high, wanted = (math.log(max(x, 1e-6)) for x in (before[1], after[1], threshold))
    return before[0] + (after[0] - before[0]) * (wanted - low) / (high - low)


def watch_of(spec: RunSpec) -> EmergenceWatch | RisingWatch:
    """The watch for the measure that decides the run's emergence."""
    if spec.task.decides == "loss":
        return EmergenceWatch(spec.train.thresholds)
    return RisingWatch(spec.train.thresholds, probe=spec.task.probe)
