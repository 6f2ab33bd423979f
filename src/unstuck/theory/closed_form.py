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
from scipy.special import erf

from unstuck.errors import BadInput

from .setting import Setting, check_threshold, real

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
    """The plateau in closed form, to three terms: blow-up, drag, finish. inf for p = 1.

    - sqrt(π/2) / μ: the blow-up time;
    - (1 - π/4) / (d T μ²): the other tokens' noise drags on the weights while attention is still uniform, to
      first order;
    - d / (2 (1 - p)) log(1 / (2 threshold)): once attention has moved, plain regression down to the threshold.
    """
    threshold = check_threshold(threshold)
    if s.p == 1:
        return math.inf
    drag = (1 - math.pi / 4) / (s.d * s.T * rate(s) ** 2)
    finish = s.d / (1 - s.p) * math.log(1 / (2 * threshold)) / 2
    return blow_up_time(s) + drag + finish


def progress(delta_a: Any) -> Array:
    """The progress law: the fraction of the plateau that has elapsed when the score gap is Δa, erf(sqrt(Δa)).

    It holds for every flow and contains no parameter: T, d, B, p and the learning rate have dropped out.
    """
    return np.asarray(erf(np.sqrt(np.maximum(delta_a, 0.0))))
