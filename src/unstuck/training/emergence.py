"""When does a run emerge? Evaluate sparsely on the plateau, densely near the threshold, and interpolate (D.1).

Every step has a value on its training batch, smoothed; times the ratio of test to training value at the last evaluation
it predicts the test value. A full evaluation is asked for when that prediction comes near the threshold and when it has
passed it. The crossing lies before the first full evaluation that reaches the threshold and after the last evaluation,
full or clearly so, that did not; the logarithm is interpolated between.

A loss falls, an accuracy rises and has chance to reckon with: a batch of 32 says little, so it is smoothed for longer,
and two full evaluations in a row must reach the threshold. It is evaluated in full at the start, too.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from unstuck.config import RunSpec

Evaluation = tuple[int, float, bool]  # step, value, whether in full
GROWTH = 0.04  # measurements are so many steps apart at first, later 4% of the steps so far


def next_measurement(step: int, every: int) -> int:
    """The step at which to look again."""
    return step + max(every, math.ceil(GROWTH * step))


@dataclass
class CrossingTracker:
    """Decides when to evaluate in full, and finds where a measure crosses each threshold."""

    SMOOTHING: ClassVar[float]  # weight of the newest step
    thresholds: tuple[float, ...]  # in the order in which they are crossed
    crossings: dict[str, float] = field(default_factory=dict)
    smooth: float | None = None  # of the training value
    ratio: float = 1.0  # of test to smoothed training value
    asked_before: bool = False  # the evaluation just ahead of the next threshold is done
    seen: list[Evaluation] = field(default_factory=list)

    @property
    def next_threshold(self) -> float | None:
        left = [t for t in self.thresholds if f"{t:g}" not in self.crossings]
        return left[0] if left else None

    @property
    def last_crossing(self) -> float | None:
        """The step of the last threshold, once all are crossed."""
        if not self.thresholds or self.next_threshold is not None:
            return None
        return max(self.crossings[f"{t:g}"] for t in self.thresholds)

    def trained(self, value: float) -> None:
        """Take one step's training value."""
        self.smooth = value if self.smooth is None else (1 - self.SMOOTHING) * self.smooth + self.SMOOTHING * value

    def wants_full(self, step: int) -> bool:
        """Is a full evaluation due after this step?"""
        raise NotImplementedError

    def evaluated(self, step: int, value: float, *, full: bool) -> None:
        """Take an evaluation of the measure that decides; only full ones can establish a crossing."""
        raise NotImplementedError

    def missed(self, threshold: float) -> bool:
        """Has a threshold that was not watched so far perhaps been crossed already?"""
        raise NotImplementedError

    def _cross(self, found: Callable[[float], float | None]) -> None:
        """Record the thresholds that were crossed, up to the first for which `found` gives no step."""
        while (threshold := self.next_threshold) is not None:
            crossing = found(threshold)
            if crossing is None:
                return
            self.crossings[f"{threshold:g}"] = crossing

    def state(self) -> dict[str, Any]:
        """What `restore` needs beside the evaluations."""
        return {k: v for k, v in vars(self).items() if k != "seen"}

    @classmethod
    def restore(cls, state: dict[str, Any], thresholds: tuple[float, ...], seen: list[Evaluation]) -> Self:
        names = cls.__dataclass_fields__
        return cls(**{k: v for k, v in state.items() if k in names} | {"thresholds": thresholds, "seen": seen})

    def _interpolated(self, above: Evaluation | None, below: Evaluation, threshold: float) -> float:
        """The step between two evaluations at which the logarithm of the value passes that of the threshold."""
        if above is None:
            return float(self.seen[0][0])
        a, b, wanted = (math.log(max(x, 1e-30)) for x in (above[1], below[1], threshold))
        return above[0] + (below[0] - above[0]) * (a - wanted) / (a - b)


@dataclass
class FallingCrossings(CrossingTracker):
    """For a loss, which falls through its thresholds. `smooth` is the logarithm of the training loss."""

    SMOOTHING = 0.2  # weight of the newest step: about five steps of memory
    BEFORE, BEYOND = 1.5, 0.9  # of the threshold: where a full evaluation is wanted
    CLEARLY = 1.15  # times the threshold: above that a small evaluation bounds the crossing, whatever its noise
    GAP = 0.01  # full evaluations ahead of a threshold are at least this part of the steps so far apart

    def __post_init__(self) -> None:
        self.thresholds = tuple(sorted(self.thresholds, reverse=True))

    def trained(self, value: float) -> None:
        super().trained(math.log(max(value, 1e-30)))

    def _near(self, threshold: float) -> float:
        """Where to look ahead of a threshold: at most half of the way back up to where the run began."""
        start = self.seen[0][1] if self.seen else math.inf
        return min(self.BEFORE * threshold, math.sqrt(threshold * max(start, threshold)))

    def wants_full(self, step: int) -> bool:
        threshold = self.next_threshold
        gap = step - max((s for s, _, full in self.seen if full), default=-2)
        if threshold is None or self.smooth is None or gap < 2:
            return False
        predicted = math.exp(self.smooth) * self.ratio
        if predicted <= self.BEYOND * threshold:
            return True
        return not self.asked_before and gap >= self.GAP * step and predicted <= self._near(threshold)

    def evaluated(self, step: int, value: float, *, full: bool) -> None:
        if self.smooth is not None:
            self.ratio = max(value, 1e-30) / math.exp(self.smooth)
        self.seen.append((step, value, full))
        if not full:
            return
        while (threshold := self.next_threshold) is not None:
            if value > threshold:
                self.asked_before |= value <= 1.1 * self._near(threshold)
                return
            self.crossings[f"{threshold:g}"] = self._crossing(step, value, threshold)
            self.asked_before = False

    def _crossing(self, step: int, value: float, threshold: float) -> float:
        above = [e for e in self.seen if e[0] < step and e[1] > threshold * (1 if e[2] else self.CLEARLY)]
        return self._interpolated(above[-1] if above else None, (step, value, True), threshold)

    def missed(self, threshold: float) -> bool:
        return any(value <= self._near(threshold) for _, value, _ in self.seen)


@dataclass
class RisingCrossings(CrossingTracker):
    """For an accuracy, which rises through its thresholds."""

    probe: int = 64  # sequences of a small evaluation

    SMOOTHING = 0.05  # weight of the newest step: about twenty steps of memory
    NEAR = 0.95  # of the threshold: where a full evaluation is wanted
    SMALL = 0.2  # weight of a small evaluation's ratio of test to training accuracy
    GAP, GAP_GROWTH = 40, 0.02  # full evaluations are so many steps apart, or this part of the steps so far

    def __post_init__(self) -> None:
        self.thresholds = tuple(sorted(self.thresholds))

    def wants_full(self, step: int) -> bool:
        """At the start, so that every crossing has a bound from below; then where the last evaluation, or the training
        accuracy times its ratio to the test's, is near the next threshold."""
        threshold = self.next_threshold
        if threshold is None:
            return False
        if self.smooth is None:
            return not self.seen
        last, value, _ = next((e for e in reversed(self.seen) if e[2]), (-self.GAP, 0.0, True))
        if step - last < max(self.GAP, self.GAP_GROWTH * step):
            return False
        small = self.seen[-1][1] if self.seen else 0.0
        return max(value, small) >= threshold or self.smooth * self.ratio >= self.NEAR * threshold

    def evaluated(self, step: int, value: float, *, full: bool) -> None:
        if self.smooth:  # a full evaluation is believed, a small one only in part
            self.ratio += (1.0 if full else self.SMALL) * (value / self.smooth - self.ratio)
        self.seen.append((step, value, full))
        self._cross(self._crossing)

    def _crossing(self, threshold: float) -> float | None:
        """Where the accuracy first reached a threshold and still did at the next full evaluation."""
        for first, second in itertools.pairwise(e for e in self.seen if e[2]):
            if min(first[1], second[1]) >= threshold:
                return self._interpolated(max(self._below(threshold, first[0]), default=None), first, threshold)
        return None

    def _below(self, threshold: float, before: int) -> list[Evaluation]:
        """What was below a threshold before a step: full evaluations, and, clearly so, means of so many small ones in
        a row that chance moves them by less than half of the threshold."""
        need = max(1, math.ceil(16 * (1 - threshold) / threshold / self.probe))
        luck = 2 * math.sqrt(threshold * (1 - threshold) / (need * self.probe))
        earlier = [e for e in self.seen if e[0] < before]
        small = [e for e in earlier if not e[2]]
        below = [e for e in earlier if e[2] and e[1] < threshold]
        for i in range(need, len(small) + 1):
            window = small[i - need : i]
            step, value = (sum(e[k] for e in window) / need for k in (0, 1))
            if value < threshold - luck:
                below.append((int(step), value, False))
        return below

    def missed(self, threshold: float) -> bool:
        return any(value >= self.NEAR * threshold for _, value, _ in self.seen)


@dataclass
class SteadyCrossings(CrossingTracker):
    """For a measure that is not known of a training batch, such as the copying advantage, and rises: every evaluation
    counts in full, and two in a row must reach a threshold. From half of it on, one is made every `every` steps."""

    every: int = 20

    SMOOTHING = 1.0

    def __post_init__(self) -> None:
        self.thresholds = tuple(sorted(self.thresholds))

    def wants_full(self, step: int) -> bool:
        threshold = self.next_threshold
        if threshold is None or not self.seen:
            return False
        last, value, _ = self.seen[-1]
        return value >= threshold / 2 and step - last >= self.every

    def evaluated(self, step: int, value: float, *, full: bool) -> None:
        self.seen.append((step, value, full))
        self._cross(self._crossing)

    def _crossing(self, threshold: float) -> float | None:
        for i in range(len(self.seen) - 1):
            if min(self.seen[i][1], self.seen[i + 1][1]) >= threshold:
                return self._between(self.seen[i - 1] if i else None, self.seen[i], threshold)
        return None

    def _between(self, below: Evaluation | None, above: Evaluation, threshold: float) -> float:
        """The step at which a straight line passes the threshold: the measure may be negative."""
        if below is None:
            return float(above[0])
        return below[0] + (above[0] - below[0]) * (threshold - below[1]) / (above[1] - below[1])

    def missed(self, threshold: float) -> bool:
        return False  # every evaluation is kept


def tracker_of(spec: RunSpec) -> CrossingTracker:
    """The tracker for the measure that decides the run's emergence."""
    if spec.task.decides == "loss":
        return FallingCrossings(spec.train.thresholds)
    if spec.task.decides == "copy_advantage":
        return SteadyCrossings(spec.train.thresholds, every=spec.train.probe_every)
    return RisingCrossings(spec.train.thresholds, probe=spec.task.probe)
