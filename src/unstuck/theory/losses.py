"""The reduced losses with their gradients and Hessians: two variables (A.3.1) and three (A.4.1).

Both are written with A = B α, the attention on all relevant tokens together; dA/dΔa = A (1 - A) for every B. Every
method takes floats or arrays that broadcast; the loss landscape is `value` on a mesh. The sizes may be arrays too: then
one loss stands for many settings, and `dormand_prince.py` integrates all of their flows together.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = Any  # a float, or an array of floats: the formulas are the same


def _exp(x: Number) -> Number:
    # The integrator calls this thousands of times with plain floats, for which math.exp is ten times faster.
    return math.exp(x) if type(x) is float else np.exp(x)


def _log(x: Number) -> Number:
    return np.log(x) if isinstance(x, np.ndarray) else math.log(x)


def _sqrt(x: Number) -> Number:
    return np.sqrt(x) if isinstance(x, np.ndarray) else math.sqrt(x)


def _stack(rows: tuple[tuple[Number, ...], ...]) -> NDArray[np.float64]:
    """Nested tuples of broadcastable entries -> array of shape (..., n, n)."""
    flat = np.broadcast_arrays(*(entry for row in rows for entry in row))
    n = len(rows)
    return np.stack(flat, axis=-1).reshape(*flat[0].shape, n, n)


@dataclass(frozen=True)
class _Attention:
    """What both losses share: how the score gap Δa becomes attention."""

    T: Number
    d: Number
    B: Number = 1

    @cached_property
    def root_d(self) -> Number:
        return _sqrt(self.d)

    @cached_property
    def _offset(self) -> Number:
        """The score gap at which the relevant tokens together get half of the attention."""
        return _log(self._rest) - _log(self.B)

    @cached_property
    def _rest(self) -> Number:
        """Tokens that are not relevant."""
        return self.T - self.B

    def attention(self, delta_a: Number) -> tuple[Number, Number]:
        """(A, 1 - A): attention on the B relevant tokens together, and on the T - B others together (Eq.
        9-10).

        1 - A is not computed by subtraction, so it stays accurate when it is tiny.
        """
        ratio = _exp(self._offset - delta_a)
        A = 1 / (1 + ratio)
        return A, ratio * A

    def alpha(self, delta_a: Number) -> Number:
        """Attention on one relevant token, α = 1 / ((T - B) exp(-Δa) + B) (Eq. 9)."""
        return self.attention(delta_a)[0] / self.B

    def delta_a(self, alpha: Number) -> Number:
        """The score gap at which one relevant token gets attention α: the inverse of `alpha`."""
        A = self.B * alpha
        return self._offset + np.log(A) - np.log1p(-A)


@dataclass(frozen=True)
class TwoVariableLoss(_Attention):
    """L(w, Δa) of Eq. 12, for any in-context repetition B and no cross-sample repetition."""

    names = ("w", "delta_a")

    def value(self, w: Number, delta_a: Number) -> Number:
        """The loss, Eq. 12."""
        A, N = self.attention(delta_a)
        return 0.5 * (N * N * w * w / self._rest + (A * w - self.root_d) ** 2) / self.d

    def gradient(self, w: Number, delta_a: Number) -> tuple[Number, Number]:
        """(dL/dw, dL/dΔa), Eq. 13-14."""
        return self.gradient_at(*self.attention(delta_a), w)

    def gradient_at(self, A: Number, N: Number, w: Number) -> tuple[Number, Number]:
        """The same where the attention A and N = 1 - A are known."""
        error = A * w - self.root_d
        noise = N * w / self._rest
        return (N * noise + A * error) / self.d, A * N * w * (error - noise) / self.d

    def hessian_rows(self, w: Number, delta_a: Number) -> tuple[tuple[Number, ...], ...]:
        """Second derivatives, with the factor A (1 - A) that the text drops from d²L/dΔa² (erratum 7)."""
        A, N = self.attention(delta_a)
        root_d, rest = self.root_d, self._rest
        slope = A * N
        ww = (N * N / rest + A * A) / self.d
        wa = slope * (2 * A * w - root_d - 2 * N * w / rest) / self.d
        da = slope * w * (A * w - root_d - N * w / rest) / self.d
        aa = (N - A) * da + slope**2 * w * w * (1 / rest + 1) / self.d
        return (ww, wa), (wa, aa)

    def hessian(self, w: Number, delta_a: Number) -> NDArray[np.float64]:
        """The Hessian in (w, Δa) as an array of shape (..., 2, 2)."""
        return _stack(self.hessian_rows(w, delta_a))

    def w_inf(self, alpha: Number) -> Number:
        """The w at which dL/dw = 0 for attention α held fixed (A.3.3): w follows it late in training."""
        A = self.B * alpha
        return self.root_d * A / ((1 - A) ** 2 / self._rest + A * A)


@dataclass(frozen=True)
class ThreeVariableLoss(_Attention):
    """L(w~, w, Δa) of Eq. 17: w~ is the weight along the frequent token x~, w along the d - 1 other directions.

    The paper writes it for B = 1. Copies of the relevant token in context do not change its covariance; they replace
    α by B α and T - 1 by T - B, as in Eq. 12. This covers B > 1.
    """

    p: Number = 0.0

    names = ("w_tilde", "w", "delta_a")

    @cached_property
    def _sigmas(self) -> tuple[Number, Number]:
        """Variances σ~ and σ of the relevant token along x~ and across it."""
        sigma = (1 - self.p) / self.d
        return self.p + sigma, sigma

    @cached_property
    def _root(self) -> Number:
        return _sqrt(self.d - 1)

    @cached_property
    def _noise(self) -> Number:
        return self.d * self._rest

    def value(self, w_tilde: Number, w: Number, delta_a: Number) -> Number:
        """The loss, Eq. 17."""
        A, N = self.attention(delta_a)
        sigma_t, sigma = self._sigmas
        noise = N * N * (w_tilde * w_tilde + w * w) / self._noise
        return 0.5 * (noise + sigma_t * (A * w_tilde - 1) ** 2 + sigma * (A * w - self._root) ** 2)

    def gradient(self, w_tilde: Number, w: Number, delta_a: Number) -> tuple[Number, Number, Number]:
        """(dL/dw~, dL/dw, dL/dΔa), Eq. 18-21."""
        return self.gradient_at(*self.attention(delta_a), w_tilde, w)

    def gradient_at(self, A: Number, N: Number, w_tilde: Number, w: Number) -> tuple[Number, Number, Number]:
        """The same where the attention A and N = 1 - A are known."""
        sigma_t, sigma = self._sigmas
        error_t, error = sigma_t * (A * w_tilde - 1), sigma * (A * w - self._root)
        noise = N / self._noise
        return (
            N * noise * w_tilde + A * error_t,
            N * noise * w + A * error,
            A * N * (w_tilde * (error_t - noise * w_tilde) + w * (error - noise * w)),
        )

    def hessian_rows(self, w_tilde: Number, w: Number, delta_a: Number) -> tuple[tuple[Number, ...], ...]:
        """Second derivatives, with the factor 2 on the noise of the cross terms (erratum 3) and the factor A (1 - A) of
        d²L/dΔa² (erratum 7), which the text lacks."""
        A, N = self.attention(delta_a)
        sigma_t, sigma = self._sigmas
        root = self._root
        spread = 1 / self._noise
        slope = A * N
        tt = N * N * spread + A * A * sigma_t
        ww = N * N * spread + A * A * sigma
        ta = slope * ((2 * A * w_tilde - 1) * sigma_t - 2 * N * w_tilde * spread)
        wa = slope * ((2 * A * w - root) * sigma - 2 * N * w * spread)
        da = slope * (
            w_tilde * (sigma_t * (A * w_tilde - 1) - N * spread * w_tilde)
            + w * (sigma * (A * w - root) - N * spread * w)
        )
        aa = (N - A) * da + slope**2 * ((sigma_t + spread) * w_tilde * w_tilde + (sigma + spread) * w * w)
        return (tt, 0.0 * ww, ta), (0.0 * ww, ww, wa), (ta, wa, aa)

    def hessian(self, w_tilde: Number, w: Number, delta_a: Number) -> NDArray[np.float64]:
        """The Hessian in (w~, w, Δa) as an array of shape (..., 3, 3)."""
        return _stack(self.hessian_rows(w_tilde, w, delta_a))


Loss = TwoVariableLoss | ThreeVariableLoss
