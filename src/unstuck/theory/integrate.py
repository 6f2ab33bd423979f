"""Integrate the gradient flow of a reduced loss, in a time variable in which it does not blow up.

Attention grows as exp(Δa), so in training time t the plateau ends almost in a blow-up, where a solver needs tiny steps.
In the variable s with dt/ds = sqrt(d) / A, where A is the attention on the relevant tokens, the flow is smooth: the
weights leave zero at rate one, and t is one more variable. `benchmarks/theory.py` measures the gain.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import LSODA, OdeSolution
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import brentq

from .losses import Loss

Array = NDArray[np.float64]
RTOL, ATOL = 1e-8, 1e-10
#: Problems of the accepted sizes need at most a tenth of this.
MAX_SOLVER_STEPS = 200_000


class NoConvergence(RuntimeError):
    """The solver failed; the message gives the time it reached."""


def slopes(loss: Loss, mobility: Any) -> tuple[Callable[..., list[Any]], Any]:
    """The derivatives of (variables of the loss, t / unit) with respect to s, as a function of the variables, and the
    unit of t. They are numbers, or arrays where the sizes of the loss are arrays."""
    root_d, unit = loss.root_d, loss.root_d * loss.T / loss.B
    gradient, attention = loss.gradient_at, loss.attention

    def velocity(*x: Any) -> list[Any]:
        *weights, delta_a = x
        A, N = attention(delta_a)
        pace = root_d / A
        *by_weights, by_delta_a = gradient(A, N, *weights)
        return [*(-pace * g for g in by_weights), -pace * mobility * by_delta_a, pace / unit]

    return velocity, unit


def equations(loss: Loss, mobility: float) -> tuple[Callable[..., Any], Callable[..., Any], float]:
    """Velocity and Jacobian of (variables of the loss, t / unit) with respect to s, and the unit of t."""
    n = len(loss.names)
    derivatives, unit = slopes(loss, mobility)
    root_d, gradient, hessian, attention = loss.root_d, loss.gradient, loss.hessian_rows, loss.attention
    mobilities = (1.0,) * (n - 1) + (mobility,)

    def velocity(_: float, y: Array) -> list[float]:
        return derivatives(*y.tolist()[:n])

    def jacobian(_: float, y: Array) -> list[list[float]]:
        x = y.tolist()[:n]
        A, N = attention(x[-1])
        pace = root_d / A
        rows = []
        for m, g, h in zip(mobilities, gradient(*x), hessian(*x), strict=True):
            row = [-pace * m * entry for entry in h]
            row[-1] += pace * N * m * g  # because d(1/A)/dΔa = -(1 - A)/A
            rows.append([*row, 0.0])
        rows.append([0.0] * (n - 1) + [-pace * N / unit, 0.0])
        return rows

    return velocity, jacobian, unit


def _solver(loss: Loss, mobility: float, rtol: float = RTOL, atol: float = ATOL) -> tuple[LSODA, float]:
    """LSODA at rest at t = 0, and the unit of t."""
    velocity, jacobian, unit = equations(loss, mobility)
    start = np.zeros(len(loss.names) + 1)
    return LSODA(velocity, 0.0, start, math.inf, jac=jacobian, rtol=rtol, atol=atol), unit


def _advance(solver: LSODA, unit: float) -> None:
    reached = solver.y[-1] * unit
    try:
        solver.step()
    except OverflowError:
        solver.status = "failed"
    if solver.status == "failed":
        raise NoConvergence(f"double precision does not carry the flow beyond time {reached:.3g}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence LSODA's warnings of a failure, which `NoConvergence` reports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@_quiet()
def time_to_reach(
    loss: Loss, mobility: float, test_loss: Loss, threshold: float, *, rtol: float = RTOL, atol: float = ATOL
) -> float:
    """The time at which `test_loss` first falls to `threshold` along the flow of `loss`, by event detection."""
    solver, unit = _solver(loss, mobility, rtol, atol)
    value = test_loss.value
    for _ in range(MAX_SOLVER_STEPS):
        _advance(solver, unit)
        if value(*solver.y.tolist()[:-1]) <= threshold:
            return _crossing(solver, value, threshold) * unit
    raise NoConvergence(f"the loss did not reach {threshold:g} within {MAX_SOLVER_STEPS} solver steps")


def _crossing(solver: LSODA, value: Callable[..., float], threshold: float) -> float:
    """t / unit at which the loss is the threshold, inside the solver's last step."""
    inside = solver.dense_output()

    def above(s: float) -> float:
        return value(*inside(s).tolist()[:-1]) - threshold

    return float(inside(brentq(above, solver.t_old, solver.t, xtol=1e-13 * solver.t))[-1])


@dataclass(frozen=True)
class Flowline:
    """A solved flow: `state(t)` has one row for each variable of the loss, at any times from 0 to `end`."""

    end: float
    state: Callable[[Array], Array]
    knots: Array  # times that follow the state: dense where it moves fast


@_quiet()
def flowline(loss: Loss, mobility: float, until: float, *, per_step: int = 8) -> Flowline:
    """Solve the flow of `loss` from rest to the time `until`."""
    solver, unit = _solver(loss, mobility)
    s_knots: list[float] = [0.0]
    pieces: list[Any] = []
    while not pieces or solver.y[-1] * unit < until:
        if len(pieces) >= MAX_SOLVER_STEPS:
            raise NoConvergence(f"time {until:g} was not reached within {MAX_SOLVER_STEPS} solver steps")
        _advance(solver, unit)
        s_knots.append(float(solver.t))
        pieces.append(solver.dense_output())
    solution = OdeSolution(s_knots, pieces)

    s = np.unique(np.concatenate([np.linspace(a, b, per_step + 1) for a, b in itertools.pairwise(s_knots)]))
    dense = solution(s)
    t = np.maximum.accumulate(dense[-1] * unit)
    rising = np.concatenate([[True], np.diff(t) > 0])
    slope = loss.attention(dense[-2, rising])[0] / loss.root_d  # ds/dt, exactly
    s_of_t = CubicHermiteSpline(t[rising], s[rising], slope)

    def state(times: Array) -> Array:
        return np.asarray(solution(s_of_t(np.asarray(times, dtype=float)))[:-1], dtype=float)

    knots = t[rising]
    return Flowline(until, state, np.append(knots[knots < until], until))
