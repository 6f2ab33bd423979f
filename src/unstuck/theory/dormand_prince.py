"""Plateau lengths of many settings at once: Dormand and Prince's Runge-Kutta pair, vectorised over the settings.

The equations and the time variable s are those of `integrate.py`. Every setting (a cell of a grid) has its own step
size, and leaves the arrays when its test loss has reached the threshold. The pair is that of Dormand & Prince, "A
family of embedded Runge-Kutta formulae", J. Comput. Appl. Math. 6 (1980) 19-26. The step size follows the error of this
step and of the one before: Hairer, Nørsett & Wanner, "Solving Ordinary Differential Equations I" (1993), Section II.4,
and Hairer & Wanner, volume II (1996), Section IV.2.

An explicit method takes many steps where the flow is stiff: the frequent token is learnt p d / (1 - p) times as fast as
the other directions. Cells that need too many have no answer here (nan); `plateau_lengths` gives them to LSODA.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .integrate import slopes
from .losses import Loss, ThreeVariableLoss, TwoVariableLoss
from .setting import Setting

Array = NDArray[np.float64]
Velocity = Callable[..., list[Array]]

#: The tableau: weights of the slopes so far, for stages 2 to 7. The last row is the fifth-order solution as well, so
#: the last slope of a step is the first of the next.
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
#: Weights of the fifth-order solution minus those of the fourth-order one.
ERROR = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

#: Largest error of a step, relative to a variable, and what is added for one near zero. Times are then within 1e-6 of
#: LSODA's at 1e-12. The loss is quadratic in the last error of the weights: below LOW thresholds need smaller ones.
RTOL, ATOL, LOW = 3e-8, 3e-10, 0.01
FIRST_STEP = 0.01  # in s, in which the weights leave zero at rate one; if too long, it is taken again
SAFETY, SHRINK, GROW = 0.9, 0.2, 5.0  # of the step size that the error suggests; its least and largest change
MEMORY = 0.04  # exponent of the error of the step before; 0 is the classical rule
EXPONENT = 1 / 5 - 0.75 * MEMORY  # of this step's error
SMALL_ERROR = 1e-4  # smaller ones are remembered as this
#: Steps before the cells that are left are given up: this many for each of them, between the two bounds. A step costs
#: about 0.2 ms whatever their number and LSODA 2 to 6 ms a cell, so few are sooner done there.
STEPS_A_CELL, LEAST_STEPS, MOST_STEPS = 30, 100, 5000
AT_ONCE = 2**14  # cells in the arrays together, 4 MB of slopes
#: Of searching for a crossing inside a step: its precision, as a part of the step, and the most trials.
PRECISION, MAX_TRIALS = 1e-13, 60


class Cells(NamedTuple):
    """Settings of flows, an entry of each array for each."""

    T: Array
    d: Array
    B: Array
    p: Array
    mobility: Array

    @classmethod
    def of(cls, settings: Sequence[Setting]) -> "Cells":
        rows = np.array([(s.T, s.d, s.B, s.p, s.mobility) for s in settings], dtype=float)
        return cls(*rows.reshape(-1, len(cls._fields)).T.copy())

    def take(self, which: Any) -> "Cells":
        return Cells(*(values[which] for values in self))


class _Equations:
    """The flows of some cells, all with p = 0 (two variables) or all with p > 0 (three); time is one variable more."""

    def __init__(self, cells: Cells) -> None:
        T, d, B, p, mobility = cells
        three = bool(len(p)) and p[0] > 0
        trained: Loss = ThreeVariableLoss(T, d, B, p) if three else TwoVariableLoss(T, d, B)
        self.test_loss = ThreeVariableLoss(T, d, B, 0.0).value if three else trained.value  # of all but the time
        self.velocity, self.unit = slopes(trained, mobility)
        self.variables = len(trained.names) + 1

    def step(self, y: Array, slope: Array, h: Array) -> tuple[Array, Array]:
        """The end of a step of length h from y, where the slope is `slope`, and the slopes of all stages."""
        found = np.empty((len(ERROR), *y.shape))
        found[0], end = slope, y
        for i, weights in enumerate(STAGES, 1):
            end = y + h * _weighted(weights, found[:i])
            for row, values in zip(found[i], self.velocity(*end[:-1]), strict=True):
                row[:] = values
        return end, found


class _Front(NamedTuple):
    """Where the cells that are under way have come to; the last axis of each array runs over them."""

    which: Any  # their indices
    y: Array
    slope: Array
    h: Array  # length of the next step
    error: Array  # of the last good step

    def take(self, those: NDArray[np.bool_]) -> "_Front":
        return _Front(*(values[..., those] for values in self))


def times_to_reach(cells: Cells, threshold: float) -> Array:
    """For each cell the time at which its test loss first falls to `threshold`; nan where that takes too many steps."""
    times = np.full(len(cells.T), np.nan)
    with np.errstate(all="ignore"):  # a step that overflows is taken again, shorter
        for group in (cells.p == 0, cells.p > 0):
            where = np.flatnonzero(group)
            for start in range(0, len(where), AT_ONCE):
                part = where[start : start + AT_ONCE]
                times[part] = _times(cells.take(part), threshold)
    return times


def _times(cells: Cells, threshold: float) -> Array:
    """Advance all cells one step after the other, each by a length of its own; then find where the last step of each
    crosses the threshold."""
    rtol = RTOL * min(1.0, math.sqrt(threshold / LOW))
    n, equations = len(cells.T), _Equations(cells)
    y = np.zeros((equations.variables, n))
    front = _Front(np.arange(n), y, np.array(equations.velocity(*y[:-1])), np.full(n, FIRST_STEP), np.ones(n))
    last, steps = [], 0
    while len(front.which) and steps < min(max(LEAST_STEPS, STEPS_A_CELL * len(front.which)), MOST_STEPS):
        steps += 1
        end, found = equations.step(front.y, front.slope, front.h)
        error = _error(front, end, found, rtol)
        good = error <= 1
        crossed = good & (equations.test_loss(*end[:-1]) <= threshold)
        if crossed.any():
            last.append(front.take(crossed))
        front = front._replace(
            y=np.where(good, end, front.y),
            slope=np.where(good, found[-1], front.slope),
            h=front.h * _change(error, front.error, good),
            error=np.where(good, np.maximum(error, SMALL_ERROR), front.error),
        )
        if crossed.any():
            front = front.take(~crossed)
            equations = _Equations(cells.take(front.which))
    times = np.full(n, np.nan)
    if last:
        ended = _Front(*(np.concatenate(parts, axis=-1) for parts in zip(*last, strict=True)))
        times[ended.which] = _crossing(_Equations(cells.take(ended.which)), ended, threshold)
    return times


def _weighted(weights: tuple[float, ...], found: Array) -> Array:
    """The sum of slopes, (stages, variables, cells), times their weights."""
    return np.dot(weights, found.reshape(len(weights), -1)).reshape(found.shape[1:])


def _error(front: _Front, end: Array, found: Array, rtol: float) -> Array:
    """Of a step, in units of the largest allowed: the root mean square over the variables; inf where one overflows."""
    allowed = rtol * (ATOL / RTOL + np.maximum(np.abs(front.y), np.abs(end)))
    error = np.sqrt(np.square(front.h * _weighted(ERROR, found) / allowed).mean(0))
    return np.where(np.isfinite(error), error, np.inf)


def _change(error: Array, before: Array, good: NDArray[np.bool_]) -> Array:
    """The length of the next step over that of this one; a step that was not good is followed by a shorter one."""
    suggested = SAFETY * error**-EXPONENT * np.where(good, before**MEMORY, 1.0)
    return np.clip(suggested, SHRINK, np.where(good, GROW, 1.0))


def _crossing(equations: _Equations, last: _Front, threshold: float) -> Array:
    """The time of the crossing inside each cell's last step. The step is taken again, shorter, until it ends on the
    threshold: regula falsi on its length, where the value at an end that stays twice counts half (Illinois)."""

    def after(part: Array) -> tuple[Array, Array]:
        end = equations.step(last.y, last.slope, part * last.h)[0]
        return end[-1], equations.test_loss(*end[:-1]) - threshold

    low, high = np.zeros_like(last.h), np.ones_like(last.h)
    part, above = high, equations.test_loss(*last.y[:-1]) - threshold
    time, below = after(high)
    moved = np.zeros_like(last.h)  # 1 where the lower end moved last, -1 where the upper one did
    for _ in range(MAX_TRIALS):
        before, part = part, low + (high - low) * above / (above - below)
        if np.all(np.abs(part - before) <= PRECISION):
            break
        time, here = after(part)
        over = here > 0
        above = np.where(over, here, np.where(moved < 0, above / 2, above))
        below = np.where(over, np.where(moved > 0, below / 2, below), here)
        low, high, moved = np.where(over, part, low), np.where(over, high, part), np.where(over, 1.0, -1.0)
    return time * equations.unit
