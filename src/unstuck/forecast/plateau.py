"""Plateaus of a loss, from its curve alone: how fast it falls a doubling of steps, and whether it has left a plateau.

The slope is Theil and Sen's (Sen, 1968): the median slope of all pairs of points, of the loss over the logarithm of the
step, with the interval of Kendall's rank test. It needs no particular distribution of noise, and a few spikes do not
move it. Points are means of neighbouring rows, which averages noise that lasts for a few rows; noise that lasts longer
is taken for a first-order autoregression of these means, which widens the interval (as Hamed and Rao, 1998). Noise that
lasts for a tenth of a window or more still makes it too narrow: no test can tell such noise from a trend.

Windows that end now and go back further are used as long as their intervals overlap (Lepski's method, as intersection
of confidence intervals: Goldenshluger and Nemirovski, 1997).
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unstuck.curve import ENOUGH_ROWS
from unstuck.scalars import real, whole

Values = NDArray[np.float64]
MIN_ROWS = ENOUGH_ROWS  # of a loss that is judged
RECENT_ROWS = 3  # whose median is the present loss: one row may be chance
STD_PER_MAD = 1.4826  # of a normal distribution: standard deviation over median absolute deviation
TINY = 1e-290  # loss below which slopes over the loss would overflow
WINDOWS = (4 / 3, 2, 4, 8, 16)  # present step over the first step of a window


@dataclass(frozen=True)
class Trend:
    """How a loss has changed lately. Slopes are fractions of the loss a doubling of steps, negative where it falls."""

    slope: float = math.nan
    low: float = -math.inf  # interval of the slope
    high: float = math.inf
    bound: float = 0.0
    level: float = math.nan  # median loss in the longest window that agrees with the shorter ones
    start: int = 0  # first row of that window

    @property
    def is_flat(self) -> bool:
        return -self.bound <= self.low and self.high <= self.bound

    @property
    def falls(self) -> bool:
        return self.high < -self.bound

    @property
    def rises(self) -> bool:
        return self.low > self.bound


@dataclass(frozen=True)
class PlateauTest:
    """An equivalence test: is a loss flat to within `bound` a doubling of steps?

    It is flat if the whole interval of its slope lies within the bound, falls or rises if the whole interval lies
    outside, and is too noisy to tell otherwise.

    - `bound`: fraction of the loss a doubling of steps. At twice the value a fall of 3% a doubling counts as flat, and
      a plateau is found with a quarter of the rows.
    - `confidence`: of the interval, over all windows together. At half the error, 0.975 instead of 0.95, a plateau
      needs a fifth more rows, and a loss that falls at just the bound is called flat half as often.
    - `points`: into which the rows of a window are averaged. With twice as many, noise that lasts for more than 1/48 of
      the window, instead of 1/24, is left to the model of autoregression.
    """

    bound: float = 0.02
    confidence: float = 0.95
    points: int = 24

    def __post_init__(self) -> None:
        real("bound", self.bound, 1e-6, 1.0, "a fraction of the loss, from 1e-6 to 1")
        real("confidence", self.confidence, 0.5, 1 - 1e-9, "a probability, at least 0.5 and below 1")
        whole("points", self.points, MIN_ROWS, 1000, f"a whole number from {MIN_ROWS} to 1000")

    def trend(self, steps: ArrayLike, losses: ArrayLike) -> Trend:
        """The slope of a loss at its last row, from rows in the order of steps.

        Examples:
            >>> steps, test = np.arange(1, 101), PlateauTest()
            >>> test.trend(steps, np.where(steps < 8, 2.0, 1.0)).is_flat, test.trend(steps, 1 / steps).falls
            (True, True)
        """
        at, values = np.asarray(steps, dtype=float), np.asarray(losses, dtype=float)
        found = Trend(bound=self.bound)
        if len(at) < MIN_ROWS:
            return found
        z = _quantile(self.confidence, len(WINDOWS))
        for window in WINDOWS:
            start = int(np.searchsorted(at, max(at[-1] / window, np.nextafter(0, 1))))
            one = _slope(np.log2(at[start:]), values[start:], z, self.points)
            low, high = max(found.low, one.low), min(found.high, one.high)
            if low > high:
                break
            slope = min(max(one.slope, low), high)
            found = replace(one, slope=slope, low=low, high=high, bound=self.bound, start=start)
        return found

    def since(self, steps: ArrayLike, losses: ArrayLike, trend: Trend) -> int:
        """The row since which a flat loss has been at its level, as far as the bound and its noise allow."""
        at, recent = np.asarray(steps, dtype=float), _medians(losses)
        with np.errstate(divide="ignore"):
            allowed = self.bound * abs(trend.level) * np.log2(at[-1] / np.maximum(at, 0))
        allowed += self._noise(recent, trend, len(at))
        away = np.flatnonzero(np.abs(recent - trend.level) > allowed)
        return int(away[-1]) + 1 if len(away) and away[-1] + 1 < len(at) else 0

    def left(self, steps: ArrayLike, losses: ArrayLike) -> tuple[int, int] | None:
        """The plateau that a loss has fallen from: its first row, and the first row below it; None where there is none.

        The loss must lie below the plateau by more than its noise. It must also lie below the steepest straight line in
        steps that the plateau allows, by the bound and by its interval: a loss that falls on steadily looks flat in its
        first steps.

        Examples:
            >>> losses = [3, 2] + [1.0] * 20 + [0.8, 0.5, 0.3, 0.1]
            >>> PlateauTest().left(range(26), losses), PlateauTest().left(range(22), losses[:22])
            ((2, 22), None)
        """
        at, values = np.asarray(steps, dtype=float), np.asarray(losses, dtype=float)
        if len(at) <= MIN_ROWS:
            return None
        recent, ends = _medians(values), self._ends(at)
        for end in ends:
            trend = self.trend(at[:end], values[:end])
            if trend.falls or trend.rises:
                continue
            low = trend.level - self._fall(at, values, trend, end) - self._noise(recent[:end], trend, len(ends))
            below = (recent < low) & (values < low)
            if recent[-1] < low[-1] and below[trend.start :].any():
                start = self.since(at[:end], values[:end], trend)
                rows = np.lib.stride_tricks.sliding_window_view(
                    np.pad(below, (0, RECENT_ROWS - 1), "edge"), RECENT_ROWS
                )
                lasting = np.asarray(rows.all(axis=1))
                fell = lasting if lasting[trend.start :].any() else below  # a lone row may be chance
                return start, int(trend.start + np.argmax(fell[trend.start :]))
        return None

    def _ends(self, at: Values) -> list[int]:
        """Rows up to which a plateau is looked for, the last first; before them a fall to 0 is within the bound."""
        quarters = np.arange(1, 4 * math.log2(1 + math.log(2) / self.bound))
        ends = np.searchsorted(at, at[-1] * 2 ** (-quarters / 4), side="right")
        return [int(end) for end in ends if end >= MIN_ROWS]

    def _fall(self, at: Values, values: Values, trend: Trend, end: int) -> Values:
        """How far a plateau may have fallen by each step, on a straight line from its middle, seen up to row `end`."""
        window = slice(trend.start, end)
        straight = _slope(at[window], values[window], _quantile(self.confidence, len(WINDOWS)), self.points)
        steepest = max(self.bound / math.log(2) / at[end - 1], -straight.low)
        return abs(trend.level) * steepest * np.maximum(at - np.median(at[window]), 0)

    def _noise(self, recent: Values, trend: Trend, tests: int) -> float:
        """By how much medians of a few rows may lie off their level by chance, in so many tests together."""
        away = np.abs(recent[trend.start :] - trend.level)
        return _quantile(self.confidence, tests) * STD_PER_MAD * float(np.median(away))


def _quantile(confidence: float, tests: int) -> float:
    """Standard errors of an interval, if so many of them are to hold together."""
    return NormalDist().inv_cdf(1 - (1 - confidence) / (2 * tests))


def _medians(losses: ArrayLike) -> Values:
    """The median of each row and its neighbours; of the last three rows in the last row."""
    values = np.asarray(losses, dtype=float)
    three = np.median(np.lib.stride_tricks.sliding_window_view(values, RECENT_ROWS), axis=1)
    return np.concatenate([three[:1], three, three[-1:]])


def _slope(x: Values, y: Values, z: float, points: int) -> Trend:
    """Theil and Sen's slope of y over x as a fraction of the median of y, with an interval of z standard errors."""
    n = min(points, len(x))
    if n < 2:
        return Trend()
    edges = np.arange(n + 1) * len(x) // n
    x, y = (np.add.reduceat(v, edges[:-1]) / np.diff(edges) for v in (x, y))
    first, second = np.triu_indices(n, 1)
    apart = x[second] > x[first]
    slopes = np.sort((y[second] - y[first])[apart] / (x[second] - x[first])[apart])
    level = float(np.median(y))
    if not len(slopes):
        return Trend(level=level)
    slope = float(np.median(slopes))
    outside = math.floor((len(slopes) - z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)) / 2)  # of Kendall's statistic
    scale = max(abs(level), TINY) if level else 1.0
    if outside < 0:
        return Trend(slope / scale, level=level)
    wider = math.sqrt(_inflation(x, y))
    ends = slope + wider * (slopes[[outside, -1 - outside]] - slope)
    low, high = np.clip(ends, slopes[0], slopes[-1]) / scale  # a slope that no two points have is not likely
    return Trend(slope / scale, float(low), float(high), level=level)


def _inflation(x: Values, y: Values) -> float:
    """Variance of a statistic of y over that with independent noise, from the autocorrelation at lag 1 of the ranks of
    residuals about a parabola: a bent curve is not noise. It is corrected for its bias, which is about 3 / n."""
    n = len(x)
    z = (x - x.mean()) / x.std()
    basis = np.linalg.qr(np.stack([np.ones(n), z, z**2], axis=1))[0]
    residuals = y - basis @ (basis.T @ y)
    if np.ptp(residuals) <= 1e-9 * np.abs(y).max():  # rounding
        return 1.0
    ranks = np.argsort(np.argsort(residuals)) - (n - 1) / 2
    biased = float(ranks[1:] @ ranks[:-1] / (ranks @ ranks))
    autocorrelation = min(max((biased + 3 / n) / (1 - 3 / n), 0.0), 1 - 1 / n)
    return (1 + autocorrelation) / (1 - autocorrelation)


def divergence(
    steps: Values, losses: Values, times: float = 10.0, early: float = 0.25, always: float = 0.9
) -> str | None:
    """How a loss has diverged: it is not finite, or `times` as high as ever in its first rows; None where it has not.

    The first rows are this `early` fraction of all that there were when it rose. A loss that was logged in more than
    `always` of the rows since its first, and then stops, is not finite; one that is logged now and then may just not
    be due yet. At twice `times` a loss that settles at 15 times its start has not diverged.

    Examples:
        >>> steps = np.arange(20.0)
        >>> divergence(steps, np.where(steps < 12, 1.0, np.nan)), divergence(steps, np.where(steps < 12, 1.0, 50.0))
        ('not finite', 'far above its start')
    """
    there = np.isfinite(losses)
    known, at = losses[there], steps[there]
    if not len(known) or np.isinf(losses[-1]):
        return "not finite"
    rows = np.flatnonzero(there)
    logged = there[rows[0] : rows[-1] + 1].mean() > always  # a watch measures once before there is a loss
    gap = np.diff(np.unique(at)).max(initial=0.0) or at[0] - steps[0]
    if gap and logged and steps[-1] - at[-1] > 2 * gap:
        return "not finite"
    return "far above its start" if _is_far_above_start(known, times, early) else None


def _is_far_above_start(losses: Values, times: float, early: float) -> bool:
    """Has a loss risen so far above its first rows at one of its rows, and is it still so far above what they were
    then? Later the first rows hold the rise itself."""
    if len(losses) <= 2 * RECENT_ROWS:
        return False
    rows = np.arange(2 * RECENT_ROWS, len(losses))
    recent = np.median(np.lib.stride_tricks.sliding_window_view(losses, RECENT_ROWS), axis=1)[rows - RECENT_ROWS + 1]
    before = np.maximum.accumulate(np.abs(losses))[np.maximum(RECENT_ROWS, (early * (rows + 1)).astype(int)) - 1]
    risen = np.flatnonzero((recent > times * before) & (before > 0))
    return bool(len(risen) and recent[-1] > times * before[risen[0]])
