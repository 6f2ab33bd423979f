"""Plateaus of a loss, from its curve alone: whether it is on one, has left one, or has diverged."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from unstuck.curve import ENOUGH_ROWS

Rows = NDArray[np.intp]
Values = NDArray[np.float64]
MIN_ROWS = ENOUGH_ROWS  # of a plateau
PLATEAU_SHARE = 4  # a plateau has at least one in so many of all rows, so that a short flat stretch is none
STANDARD_ERRORS = 3.0  # by which the halves of a plateau may differ
FLAT_WITHIN = 0.02  # fraction of the loss by which they may differ in any case
RECENT_ROWS = 3  # whose median is the present loss: one row may be chance
EXIT_FALL = 0.15  # fraction by which the present loss lies below a plateau that it has left
SOLVED = 0.2  # fraction of its plateau at which a loss that is at rest has left it, and is not on the next one
SPIKE = 6.0  # times the usual distance from its neighbours, from which on a row is an outlier
MAX_ENDS = 60  # of earlier plateaus that are tried, for speed
ALWAYS_LOGGED = 0.9  # fraction of rows with a value, from which on a loss that ends counts as not finite
DIVERGED_TIMES = 10.0  # the present loss over the highest in the first quarter of its rows
STD_PER_MAD = 1.4826  # of a normal distribution: standard deviation over median absolute deviation
MIN_SLOW_FALL = 0.0005  # fraction below which a slow fall is not reported


@dataclass
class PlateauDetector:
    """Whether a noisy measure has stopped falling, judged by its own noise.

    It compares the two halves of the steps since the last change of level. The measure `stands` if the mean of the
    second half is below that of the first by at most `sure` standard errors, or by at most `tolerance` of its value. It
    is `stuck` if, in addition, it does not rise by more than that, and a fall by `blind` of its value can be excluded
    with `sure` standard errors: where noise would hide such a fall, more steps are needed.
    """

    least: int = 100  # steps that are compared
    sure: float = 3.0  # standard errors
    tolerance: float = 0.02  # fraction of the value
    blind: float = 0.075  # fraction of the value
    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.values.append(value)

    def reset(self) -> None:
        self.values.clear()

    @property
    def stands(self) -> bool:
        return len(self.values) >= self.least and self.flat(self.lately())

    @property
    def stuck(self) -> bool:
        if len(self.values) < self.least:
            return False
        first, second, noise = halves(self.lately())
        seen = first - second + self.sure * noise <= self.blind * abs(first)
        return seen and abs(first - second) <= max(self.sure * noise, self.tolerance * abs(first))

    def lately(self) -> list[float]:
        """The values that are compared."""
        return self.values[-max(self.least, len(self.values) // 2) :]

    def flat(self, window: Sequence[float]) -> bool:
        """Is the second half of these values no lower than the first?"""
        first, second, noise = halves(window)
        return first - second <= max(self.sure * noise, self.tolerance * abs(first))


def halves(window: Sequence[float]) -> tuple[float, float, float]:
    """Means of the halves, and the standard error of their difference."""
    half = len(window) // 2
    first, second = window[:half], window[-half:]
    return fmean(first), fmean(second), math.sqrt((_variance(first) + _variance(second)) / half)


def _variance(values: Sequence[float]) -> float:
    middle = fmean(values)
    return math.fsum((v - middle) ** 2 for v in values) / max(1, len(values) - 1)


def plateau_since(losses: Sequence[float]) -> int | None:
    """The row since which a loss has been flat to the end, for at least a quarter of all rows; None where it falls or
    rises.

    Examples:
        >>> plateau_since([5, 4, 3, 2, 1.5, 1.2] + [1.0] * 20), plateau_since(list(range(50, 0, -1)))
        (6, None)
    """
    return _since(_Rows(losses), len(losses))


def plateau_left(losses: Sequence[float]) -> tuple[int, int] | None:
    """The plateau that a loss has fallen from: its first row, and the first row below it. None where there was none,
    and where the loss is flat again at a level that may be the next plateau. A loss that falls steadily looks flat for
    short stretches; it has not left a plateau unless it is lower than the trend of the stretch predicts.

    Examples:
        >>> plateau_left([3, 2] + [1.0] * 20 + [0.8, 0.5, 0.3, 0.1]), plateau_left([3, 2] + [1.0] * 20)
        ((2, 22), None)
    """
    if len(losses) < MIN_ROWS:
        return None
    rows, now = _Rows(losses), median(losses[-RECENT_ROWS:])
    stands = _since(rows, len(losses)) is not None
    for end in range(len(losses) - 1, MIN_ROWS - 1, -max(1, len(losses) // MAX_ENDS)):
        start = _since(rows, end)
        if start is None:
            continue
        level = median(losses[start:end])
        low = level - EXIT_FALL * abs(level)
        if now < low + min(0.0, rows.drift(start, end)) and not (stands and (level <= 0 or now > SOLVED * level)):
            below = (i for i in range(start, len(losses)) if max(losses[i], median(losses[i : i + RECENT_ROWS])) < low)
            return start, next(below)
    return None


def divergence(steps: Values, losses: Values) -> str | None:
    """How a loss has diverged: it is not finite, or far above its start; None where it has not. A loss that was logged
    in nearly every row and then stops is not finite; one that is logged now and then may just not be due yet.

    Examples:
        >>> steps = np.arange(20.0)
        >>> divergence(steps, np.where(steps < 12, 1.0, np.nan)), divergence(steps, np.where(steps < 12, 1.0, 50.0))
        ('not finite', 'far above its start')
    """
    there = np.isfinite(losses)
    known, at = losses[there], steps[there]
    if not len(known) or np.isinf(losses[-1]):
        return "not finite"
    gaps = np.diff(np.unique(at))
    always = there[: np.flatnonzero(there)[-1] + 1].mean() > ALWAYS_LOGGED
    if len(gaps) and always and steps[-1] - at[-1] > 2 * gaps.max():
        return "not finite"
    before = np.abs(known[: max(RECENT_ROWS, len(known) // PLATEAU_SHARE)])
    far = len(known) > 2 * RECENT_ROWS and np.median(known[-RECENT_ROWS:]) > DIVERGED_TIMES * before.max() > 0
    return "far above its start" if far else None


def falls_slowly(losses: Sequence[float]) -> float | None:
    """Fraction by which a loss on a plateau fell from the first half of its rows to the second, if that is more than
    noise; None where it is not."""
    if len(losses) < MIN_ROWS:
        return None
    first, second, noise = halves(losses)
    fell = first - second
    return fell / abs(first) if fell > max(STANDARD_ERRORS * noise, MIN_SLOW_FALL * abs(first)) else None


def _without_spikes(losses: Values) -> Values:
    """Replace outliers, as the first row often is, by the median of their neighbours: they would look like noise."""
    if len(losses) < MIN_ROWS:
        return losses
    around = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(losses, 2, "reflect"), 5), axis=1)
    away = np.abs(losses - around)
    return np.where(away > SPIKE * STD_PER_MAD * np.median(away), around, losses)


class _Rows:
    """Losses without spikes, with cumulative sums that give the mean and variance of any stretch."""

    def __init__(self, losses: Sequence[float]) -> None:
        self.losses = _without_spikes(np.asarray(losses, dtype=float))
        self.middle = float(self.losses.mean()) if len(self.losses) else 0.0
        away = self.losses - self.middle
        self.sums, self.squares = (np.concatenate([[0.0], np.cumsum(x)]) for x in (away, away**2))

    def still(self, starts: Rows, ends: Rows) -> NDArray[np.bool_]:
        """Do the halves of each stretch differ by at most their noise, or at most FLAT_WITHIN?"""
        half = (ends - starts) // 2
        first, second = (self._moments(a, a + half) for a in (starts, ends - half))
        noise = np.sqrt((first[1] + second[1]) / half)
        allowed = np.maximum(STANDARD_ERRORS * noise, FLAT_WITHIN * np.abs(first[0] + self.middle))
        return np.asarray(np.abs(first[0] - second[0]) <= allowed)

    def drift(self, start: int, end: int) -> float:
        """How far the trend of a stretch, continued to the last row of all, leads from its middle."""
        half = (end - start) // 2
        first, second = self.losses[start : start + half].mean(), self.losses[end - half : end].mean()
        return float((second - first) / (end - start - half) * (len(self.losses) - (start + end) / 2))

    def _moments(self, a: Rows, b: Rows) -> tuple[Values, Values]:
        n = b - a
        mean = (self.sums[b] - self.sums[a]) / n
        variance = np.maximum(self.squares[b] - self.squares[a] - n * mean**2, 0.0) / np.maximum(n - 1, 1)
        return mean, variance


def _since(rows: _Rows, end: int) -> int | None:
    """The first row since which the losses up to row `end` are flat, also in the beginning of that stretch."""
    least = max(MIN_ROWS, end // PLATEAU_SHARE)
    if end < least:
        return None
    starts = np.arange(end - least + 1)
    ends = np.full_like(starts, end)
    begun = starts + np.maximum(MIN_ROWS, (ends - starts) // PLATEAU_SHARE)
    found = np.flatnonzero(rows.still(starts, ends) & rows.still(starts, begun))
    if not len(found):
        return None
    losses = rows.losses[found[0] : end]
    level = float(np.median(losses))
    spread = STANDARD_ERRORS * STD_PER_MAD * float(np.median(np.abs(losses - level)))
    if np.median(losses[-RECENT_ROWS:]) < level - max(spread, EXIT_FALL * abs(level)):  # it falls now
        return None
    arrived = losses <= level + max(spread, FLAT_WITHIN * abs(level))  # the first rows may still fall to the level
    return int(found[0] + np.argmax(arrived))
