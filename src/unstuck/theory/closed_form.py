"""Closed forms for the plateau: linearised dynamics, escape time, blow-up time, progress law.

All four flows (paper's or exact, with or without cross-sample repetition) share one pair of equations for T >> B.
With v the weight gained along the direction of the first gradient, c the initial rate at which it grows, and m the
mobility of Δa,

    v' = c e^Δa,   Δa' = m c e^Δa v,   c = (B/T) sqrt((1 + p² (d - 1)) / d),   m = 1 (reduced) or 1/B (exact).

Everything here follows from them; docs/derivation.md has the steps, docs/errata.md where the paper's text differs.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erf

from unstuck.errors import BadInput
from unstuck.scalars import real

from .setting import Setting, check_threshold

Array = NDArray[np.float64]


def _mobility(s: Setting) -> float:
    return 1.0 if s.kind == "reduced" else 1.0 / s.B


def rate(s: Setting) -> float:
    """The rate μ = c sqrt(m) at which the linearised flow leaves its start.

    B / (sqrt(d) T) for the reduced flow, sqrt(B) / (sqrt(d) T) for the exact one; times sqrt(1 + p² (d - 1))
    with cross-sample repetition (erratum 9; the paper has sqrt(p² d + (1 - p)²)).
    """
    return math.sqrt(_mobility(s) * (1 + s.p**2 * (s.d - 1)) / s.d) * s.B / s.T


class Linearised(NamedTuple):
    """The linearised flow at times t. `w_tilde` is None when p = 0."""

    w: Array
    w_tilde: Array | None
    delta_a: Array
    loss: Array  # test loss, to second order


def linearised(s: Setting, t: Any) -> Linearised:
    """w = sinh(λ t), Δa = cosh(λ t) - 1, L = (1 - κ sinh 2λt) / 2 and their counterparts for the other flows
    (A.3.2, A.4.2)."""
    t = np.asarray(t, dtype=float)
    mu = rate(s)
    grown = np.sinh(mu * t) / mu * s.B / s.T  # what a direction of unit gradient has gained
    sigma = (1 - s.p) / s.d
    loss = 0.5 * (1 - _drop(s) * np.sinh(2 * mu * t))
    delta_a = np.cosh(mu * t) - 1
    if s.p == 0:
        return Linearised(grown / math.sqrt(s.d), None, delta_a, loss)
    return Linearised(sigma * math.sqrt(s.d - 1) * grown, (s.p + sigma) * grown, delta_a, loss)


def _drop(s: Setting) -> float:
    """κ in L = (1 - κ sinh 2μt) / 2 for the test loss: B² / (d T² μ) for every flow.

    To first order the test loss falls by (B / (d T)) (w~ + sqrt(d-1) w) e^Δa, and the two weights grow in
    proportion to σ~ and σ sqrt(d-1), whose sum here is σ~ + (d-1) σ = 1: the repetition p enters through μ
    alone.
    """
    return s.B**2 / (s.d * s.T**2 * rate(s))


def escape_time(s: Setting, eps: float = 0.8) -> float:
    """Time for the linearised test loss to fall to (1 - eps) of its start: arcsinh(eps / κ) / (2 μ).

    For the paper's flow it is sqrt(d) T / (2 B) arcsinh(eps sqrt(d) T / B). It describes how the plateau is
    *left*, not how long it lasts: for that see `blow_up_time`.
    """
    eps = real("eps", eps, 0.0, 1.0, "a number from 0 to 1")
    return math.asinh(eps / _drop(s)) / (2 * rate(s))


def escape_time_eq6(s: Setting, eps: float = 0.8) -> float:
    """Equation 6 as printed (with sqrt(d) T for sqrt(dT)): log(eps / κ) / (2 μ), without the 2 of arcsinh(x) ~
    log 2x."""
    eps = real("eps", eps, 0.0, 1.0, "a number above 0, up to 1")
    if eps == 0:
        raise BadInput("eps", eps, "a number above 0, up to 1")
    return math.log(eps / _drop(s)) / (2 * rate(s))


def blow_up_time(s: Setting) -> float:
    """The plateau for large T, when attention leaves for good: sqrt(π/2) / μ.

    Dividing the two equations above gives Δa = m v² / 2, so v' = c exp(m v² / 2) reaches infinity after (1/c) ∫
    exp(-m v²/2) dv. That is sqrt(π/2) sqrt(d) T / B for the reduced flow, sqrt(π/2) sqrt(d) T / sqrt(B) for the
    exact one: no logarithm (erratum 2).
    """
    return math.sqrt(math.pi / 2) / rate(s)


def plateau_estimate(s: Setting, threshold: float = 0.1) -> float:
    """The plateau in closed form, to three terms: blow-up, drag, finish. inf where it never ends.

    - sqrt(π/2) / μ: the blow-up time;
    - (1 - π/4) / (d T μ²): the other tokens' noise drags on the weights while attention is still uniform, to
      first order;
    - `finish_time`: once attention has moved, plain regression down to the threshold.

    Meant for T >> B. With p near one attention stops half-way until the other directions are learnt (Figure
    10), which none of the terms knows: at T = 512, d = 64, p = 0.8 the estimate is a quarter too short.
    """
    return blow_up_time(s) + (1 - math.pi / 4) / (s.d * s.T * rate(s) ** 2) + finish_time(s, threshold)


def finish_time(s: Setting, threshold: float = 0.1) -> float:
    """Time of plain regression from loss 1/2 to the threshold, with all attention on the relevant tokens.

    The test loss is then (exp(-2 σ~ t) + (d-1) exp(-2 σ t)) / (2 d); for p = 0 it reaches the threshold after
    (d/2) log(1 / (2 threshold)). inf where it stays above.
    """
    threshold = check_threshold(threshold)
    sigma = (1 - s.p) / s.d

    def above(t: float) -> float:
        return (math.exp(-2 * (s.p + sigma) * t) + (s.d - 1) * math.exp(-2 * sigma * t)) / s.d - 2 * threshold

    if s.d > 1 and s.p == 1 and (s.d - 1) / s.d >= 2 * threshold:
        return math.inf
    late = 1.0
    while above(late) > 0:
        late *= 2
    return float(brentq(above, 0.0, late, xtol=1e-12 * late, rtol=1e-12))


def progress(delta_a: Any) -> Array:
    """The progress law: the fraction of the plateau that has elapsed when the score gap is Δa, erf(sqrt(Δa)).

    It holds for every flow and contains no parameter: T, d, B, p and the learning rate have dropped out.
    """
    return np.asarray(erf(np.sqrt(np.maximum(delta_a, 0.0))))
