"""The events that forecasts are about, found in a curve: when a loss leaves its level, and when induction heads form.

A loss *stands* at a level if the two halves of its recent past differ by little. It has *left* that level once the
median of three rows lies below by a fifth of it. A run may do so several times, as in stage-wise learning (paper 2);
each of these exits is an event of its own, and the steps to it are counted from when the loss came to its level.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unstuck.columns import COPY_ADVANTAGE
from unstuck.curve import Curve

from .plateau import RECENT_ROWS, STD_PER_MAD

Array = NDArray[np.float64]
ROUNDING = 1e-9  # by which the step of a row may lie off a fraction of the present one, relative to it
MOST_ROWS = 1000  # of a loss at which it is asked whether it stands, for speed


RECENT = (0.8, 1.0)  # fractions of the present step between which the level is taken


class Event(StrEnum):
    """What an outcome is about."""

    EXIT = "exit"  # the loss leaves the level at which it stands
    CIRCUIT = "circuit"  # induction heads form
    TASK = "task"  # a threshold that the user names is reached


@dataclass(frozen=True)
class Level:
    """Where a loss stands at the last of its rows."""

    value: float  # median over the last fifth of the steps
    noise: float  # standard deviation of a row
    left_below: float  # the loss at which it has left the level


class Standing(NamedTuple):
    """A loss that stands at a level at one of its rows."""

    row: int
    level: Level
    left: float | None  # the step at which it leaves the level; None if it never does
    since: float  # the step at which it came to the level; 0 before the first exit


@dataclass(frozen=True)
class ExitRule:
    """When a loss stands, and when it has left its level.

    `fall` is the fraction of the level by which it must fall. At twice the value exits come later and shallow ones,
    such as those of language models (use 0.02 to 0.05 there), are no longer events. A fall also has to be `noises`
    times the noise of a row; at twice the value noisy losses leave later. A loss that stands at or below `done` times
    the highest level at which it stood has nothing left to learn; at twice the value a run is called done on its last
    plateau but one.
    """

    fall: float = 0.2
    noises: float = 5.0
    done: float = 0.2

    def level(self, steps: Array, losses: Array) -> Level | None:
        """The level at which a loss stands at its last row; None where it falls, and where there are too few rows."""
        if not can_tell(steps):
            return None
        first, second, last = (losses[_between(steps, *part)] for part in ((0.5, 0.75), (0.75, 1.0), RECENT))
        value, noise = float(np.median(last)), _noise(np.concatenate([first, second]))
        fall = max(self.fall * abs(value), self.noises * noise)
        recent = float(np.median(losses[-RECENT_ROWS:]))
        if np.median(first) - np.median(second) > fall / 2 or recent < value - fall / 2:
            return None
        return Level(value, noise, value - fall)

    def exit(self, steps: Array, losses: Array, level: Level, after: float) -> float | None:
        """The step after `after` at which a loss leaves a level, on a straight line between rows; None if it never
        does."""
        below = losses < level.left_below
        twice = below[2:] & (below[1:-1] | below[:-2]) | (below[1:-1] & below[:-2])  # the median of three rows
        rows = 2 + np.flatnonzero(twice & (steps[2:] > after))
        return _crossing(steps, losses, level.left_below, after, int(rows[0])) if len(rows) else None

    def standing(self, steps: Array, losses: Array) -> Iterator[Standing]:
        """The rows at which a loss stands. After an exit it stands again once it has come to another level."""
        level, left, since = Level(math.inf, 0.0, math.inf), None, 0.0
        for i in np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_ROWS)).round().astype(int)).tolist():
            here = self.level(steps[: i + 1], losses[: i + 1])
            if here is None:
                continue
            if left is not None and RECENT[0] * steps[i] <= left < steps[i] and here.value >= level.left_below:
                continue  # the last fifth of the steps still shows the level that was left
            if left is not None and left < steps[i]:
                since = _arrival(steps[: i + 1], losses[: i + 1], here, left)
            level, left = here, self.exit(steps, losses, here, steps[i])
            yield Standing(i, level, left, since)

    def exits(self, curve: Curve) -> list[float]:
        """The steps at which a curve's loss left a level at which it had stood, one after the other.

        Examples:
            >>> loss = [3.0, 2.0] + [1.0] * 10 + [0.4] * 20 + [0.1] * 9
            >>> curve = Curve.from_rows({"step": 10 * i, "loss": x} for i, x in enumerate(loss))
            >>> [round(step) for step in ExitRule().exits(curve)]
            [113, 313]
        """
        steps, losses = finite_loss(curve)
        return exits(steps, list(self.standing(steps, losses)))

    def is_done(self, levels: Sequence[Level]) -> bool:
        """Does a loss that stood at these levels stand, at last, where nothing is left to learn?"""
        return 0 <= levels[-1].value <= self.done * max(level.value for level in levels)


def exits(steps: Array, stood: Sequence[Standing]) -> list[float]:
    """The steps at which a loss left its levels, from the rows at which it stood."""
    rows = [*((steps[at.row], at.left) for at in stood), (math.inf, None)]
    return [left for (_, left), (next_row, _) in pairwise(rows) if left is not None and next_row > left]


def _arrival(steps: Array, losses: Array, level: Level, after: float) -> float:
    """The first step after an exit at which the median of three rows is above the next level by at most half of the
    fall by which that is left."""
    near = losses <= level.value + (level.value - level.left_below) / 2
    rows = 2 + np.flatnonzero((near[2:].astype(int) + near[1:-1] + near[:-2] >= 2) & (steps[2:] > after))
    return float(steps[rows[0]]) if len(rows) else float(steps[-1])


def can_tell(steps: Array) -> bool:
    """Are there enough rows to tell whether a loss stands?"""
    if not len(steps):
        return False
    first, last = (part.stop - part.start for part in (_between(steps, 0.5, 0.75), _between(steps, *RECENT)))
    return first >= RECENT_ROWS - 1 and last >= RECENT_ROWS


def finite_loss(curve: Curve) -> tuple[Array, Array]:
    """Steps and losses of the rows with a finite loss, in the order of steps."""
    curve = curve.sorted()
    there = np.isfinite(curve.loss)
    return curve.steps[there], curve.loss[there]


def _between(steps: Array, low: float, high: float) -> slice:
    """The rows from one fraction of the present step to another."""
    first, last = (share * steps[-1] * (1 + side * ROUNDING) for share, side in ((low, -1), (high, 1)))
    return slice(int(np.searchsorted(steps, first)), int(np.searchsorted(steps, last, side="right")))


def _noise(losses: Array) -> float:
    """Standard deviation of a row, from the differences between neighbours, which a slow trend hardly changes."""
    differences = np.diff(losses)
    return float(STD_PER_MAD * np.median(np.abs(differences - np.median(differences))) / np.sqrt(2))


def _crossing(steps: Array, losses: Array, threshold: float, after: float, last: int) -> float:
    """Where the loss first passes the threshold, among the rows whose median is below it."""
    rows = [i for i in range(max(0, last - RECENT_ROWS + 1), last + 1) if steps[i] > after and losses[i] < threshold]
    i = rows[0] if rows else last
    before = losses[i - 1]
    if before <= threshold:
        return float(max(steps[i], after))
    share = (before - threshold) / (before - losses[i])
    return float(max(steps[i - 1] + share * (steps[i] - steps[i - 1]), after))


@dataclass(frozen=True)
class CircuitRule:
    """When induction heads have formed: the copying advantage reaches `nats` at two measurements in a row, and if the
    curve has scores, that of a head is at least `support` at both; on a curve without the advantage, a head's score
    reaches `score`. At twice the values they form later, or never: a copying advantage is at most the logarithm of the
    vocabulary, a score at most 1. Without `support` a gain by other means would count, such as a preference for tokens
    that were seen. Uniform attention has a score of 0.03 in sequences of 48 tokens and 0.06 in those of 24."""

    nats: float = 2.0
    score: float = 0.5
    support: float = 0.1

    def formed(self, curve: Curve) -> float | None:
        """The step at which induction heads formed; None if they have not, or nothing of the kind is measured."""
        curve = curve.sorted()
        if curve.has(COPY_ADVANTAGE):
            return _first_twice(curve.steps, self._supported(curve), self.nats)
        scores = curve.complete("induction")
        above = scores.best("induction") >= self.score if len(scores) else np.zeros(0, dtype=bool)
        return float(scores.steps[above][0]) if above.any() else None

    def unformed(self, curve: Curve) -> float | None:
        """The step of the last measurement that shows no induction heads; None where no measurement does.

        Examples:
            >>> rows = [{"step": s, "copy_advantage": x} for s, x in ((0, 0.1), (10, 0.4), (20, 2.5))]
            >>> CircuitRule().unformed(Curve.from_rows(rows))
            10.0
        """
        curve = curve.sorted()
        if curve.has(COPY_ADVANTAGE):
            steps, below = curve.steps, self._supported(curve) < self.nats  # not where nothing was measured
        else:
            scores = curve.complete("induction")
            steps, below = scores.steps, (scores.best("induction") < self.score if len(scores) else np.zeros(0, bool))
        return float(steps[below][-1]) if below.any() else None

    def _supported(self, curve: Curve) -> Array:
        """The copying advantage; 0 where scores are measured and no head has one."""
        advantage = curve.values(COPY_ADVANTAGE)
        if "induction" not in curve.measures:
            return advantage
        return np.where(np.isfinite(advantage) & (curve.best("induction") < self.support), 0.0, advantage)


def _first_twice(steps: Array, values: Array, least: float) -> float | None:
    """The first of two measurements in a row that are at least so much."""
    there = np.isfinite(values)
    steps, above = steps[there], values[there] >= least
    return next((float(step) for step, (a, b) in zip(steps[:-1], pairwise(above), strict=True) if a and b), None)
