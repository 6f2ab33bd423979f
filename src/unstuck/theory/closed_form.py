"""Closed forms for the plateau: linearised dynamics, escape time, blow-up time, progress law.

All four flows (paper's or exact, with or without cross-sample repetition) share one pair of equations for T >> B.
With v the weight gained along the direction of the first gradient, c the initial rate at which it grows, and m the
mobility of Δa,

    v' = c e^Δa,   Δa' = m c e^Δa v,   c = (B/T) sqrt((1 + p² (d - 1)) / d),   m = 1 (reduced) or 1/B (exact).

Everything here follows from them. docs/derivation.md has the steps; docs/errata.md the differences from the paper.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
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
    """The linearised flow at times t: w = sinh(λ t), Δa = cosh(λ t) - 1, L = (1 - κ sinh 2λt) / 2 for the reduced
    flow, and the corresponding forms for the others (A.3.2, A.4.2)."""
    t = np.asarray(t, dtype=float)
    mu = rate(s)
    grown = np.sinh(mu * t) / mu * s.B / s.T  # weight gained along a direction of unit gradient
    sigma = (1 - s.p) / s.d
    loss = 0.5 * (1 - _drop(s) * np.sinh(2 * mu * t))
    delta_a = np.cosh(mu * t) - 1
    if s.p == 0:
        return Linearised(grown / math.sqrt(s.d), None, delta_a, loss)
    return Linearised(sigma * math.sqrt(s.d - 1) * grown, (s.p + sigma) * grown, delta_a, loss)


def _drop(s: Setting) -> float:
    """κ in L = (1 - κ sinh 2μt) / 2 for the test loss: B² / (d T² μ) for every flow.

    To first order the test loss falls by (B / (d T)) (w~ + sqrt(d-1) w) e^Δa. The two weights grow in proportion to
    σ~ and σ sqrt(d-1), and σ~ + (d-1) σ = 1, so the repetition p enters only through μ.
    """
    return s.B**2 / (s.d * s.T**2 * rate(s))


def escape_time(s: Setting, eps: float = 0.8) -> float:
    """Time for the linearised test loss to fall to (1 - eps) of its start: arcsinh(eps / κ) / (2 μ).

    For the paper's flow it is sqrt(d) T / (2 B) arcsinh(eps sqrt(d) T / B). It describes how the run leaves its
    start, not how long the plateau lasts; see `blow_up_time` for that.
    """
    eps = real("eps", eps, 0.0, 1.0, "a number from 0 to 1")
    return math.asinh(eps / _drop(s)) / (2 * rate(s))


def escape_time_eq6(s: Setting, eps: float = 0.8) -> float:
    """Equation 6 as printed, with sqrt(d) T in place of sqrt(dT): log(eps / κ) / (2 μ). It lacks the factor 2 of
    arcsinh(x) ~ log(2x)."""
    eps = real("eps", eps, 0.0, 1.0, "a number above 0, up to 1")
    if eps == 0:
        raise BadInput("eps", eps, "a number above 0, up to 1")
    return math.log(eps / _drop(s)) / (2 * rate(s))


def blow_up_time(s: Setting) -> float:
    """The plateau for large T: sqrt(π/2) / μ, the time at which the approximate flow diverges.

    Dividing the two equations above gives Δa = m v² / 2, so v' = c exp(m v² / 2) reaches infinity after (1/c) ∫
    exp(-m v²/2) dv. This is sqrt(π/2) sqrt(d) T / B for the reduced flow and sqrt(π/2) sqrt(d) T / sqrt(B) for the
    exact one, without a logarithm (erratum 2).
    """
    return math.sqrt(math.pi / 2) / rate(s)


def plateau_estimate(s: Setting, threshold: float = 0.1) -> float:
    """The plateau to three terms: blow-up, drag, and finish or catch-up. inf where it never ends.

    - sqrt(π/2) / μ: the blow-up time;
    - (1 - π/4) / (d T μ²): noise of the other tokens slows the weights while attention is still uniform (first order);
    - the longer of `finish_time`, plain regression down to the threshold once attention has moved, and
      `catch_up_time`, in which the directions other than the frequent token are learnt.

    It needs T >> B: within 4% of the integrated flow for T/B >= 128 and p <= 0.8 (tested for d from 16 to 256),
    within 9% for T/B = 32.
    """
    drag = (1 - math.pi / 4) / (s.d * s.T * rate(s) ** 2)
    return blow_up_time(s) + drag + max(finish_time(s, threshold), catch_up_time(s, threshold))


def finish_time(s: Setting, threshold: float = 0.1) -> float:
    """Time of plain regression from loss 1/2 to the threshold, with all attention on the relevant tokens.

    The test loss is (exp(-2 σ~ t) + (d-1) exp(-2 σ t)) / (2 d). For p = 0 it reaches the threshold after
    (d/2) log(1 / (2 threshold)). inf where it never does.
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


def catch_up_time(s: Setting, threshold: float = 0.1) -> float:
    """Time from the blow-up to the threshold when the frequent token is learnt before attention has moved; 0 where this
    does not happen (p = 0, or p small).

    The frequent direction is learnt early: w~ A reaches 1 at an attention A_1 < 1. From then on w~ = 1/A. This weight
    must fall as attention grows, which slows attention until the other weight w has caught up. Without noise

        m (w² + w~²) / 2 = F(x) - F(x_0),   F(x) = x + e^x,   x = log(A / (1 - A)) = Δa + log(B / (T - B))

    holds along the flow. With w~ = 1/A this gives w as a function of A, and one integral is left: dt = dw / (σ A
    (sqrt(d-1) - A w)), up to the w at which the test loss, (sqrt(d-1) - A w)² / (2 d), is the threshold.
    docs/derivation-corrections.md has the steps.
    """
    threshold = check_threshold(threshold)
    sigma, others = (1 - s.p) / s.d, math.sqrt(s.d - 1)
    if s.p == 0 or sigma == 0 or others == 0 or 2 * s.B >= s.T:  # the last: attention is high from the start
        return 0.0
    m, slope = _mobility(s), math.hypot(s.p + sigma, sigma * others)
    share, share_frequent = sigma * others / slope, (s.p + sigma) / slope  # initial fractions of v along w and w~

    def gained(x: float, y: float) -> float:  # 2 (F(x + y) - F(x)) / m
        return 2 * (y + math.exp(x) * math.expm1(y)) / m

    def attention(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    start, end = math.log(s.B / (s.T - s.B)), 40.0  # at 40 attention is 1 in double precision
    first = brentq(lambda x: attention(x) * share_frequent * math.sqrt(gained(start, x - start)) - 1, start, end)
    v = math.sqrt(gained(start, first - start))
    odds = math.exp(-first)  # (1 - A) / A at `first`

    def weight(y: float) -> float:
        lost = odds * -math.expm1(-y) * (2 + odds * (1 + math.exp(-y)))  # w~² = 1/A² falls
        return math.sqrt((share * v) ** 2 + gained(first, y) + lost)

    def missing(y: float) -> float:
        return others - attention(first + y) * weight(y)

    allowed = math.sqrt(2 * threshold * s.d)
    if missing(0.0) <= allowed:
        return 0.0
    last = brentq(lambda y: missing(y) - allowed, 0.0, end - first)

    def pace(u: float) -> float:  # dt/du with y = last u², since w may start near 0
        y = last * u * u
        away = odds * math.exp(-y)
        step = (1 + 1 / away) / m + away * (1 + away)  # w dw/dy
        return 2 * last * u * step * (1 + away) / (weight(y) * sigma * missing(y))

    rest = blow_up_time(s) * math.erfc(v * math.sqrt(m / 2))  # rest of the blow-up time after `first`
    return float(quad(pace, 0.0, 1.0, limit=200, epsrel=1e-6)[0]) - rest


def progress(delta_a: Any) -> Array:
    """The progress law: the fraction of the plateau that has elapsed when the score gap is Δa, erf(sqrt(Δa)).

    It holds for every flow and has no parameter: T, d, B, p and the learning rate cancel. It needs T >> B sqrt(d) and
    d >> 1: at T = 10^6, after a fifth of the plateau, the estimated end is 0.91 of the true one for d = 2, 0.94 for
    d = 4 and 0.97 for d = 16.
    """
    return np.asarray(erf(np.sqrt(np.maximum(delta_a, 0.0))))
