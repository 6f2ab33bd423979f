"""Gradient descent on the toy model of Eq. 2 itself, all T scores free: the brute-force check of the exact flow.

The expectation over the data is taken exactly (A.2), so this is the population loss. Only W is reduced: from zero it
stays on the line through W* (A.3.1).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstuck.errors import BadInput

from .crossing import log_crossing
from .integrate import NoConvergence
from .setting import Setting, check_threshold

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Descent:
    """Test loss after each step, and the time (steps × lr, interpolated) at which it is at most the threshold."""

    steps: float
    loss: Array
    scores: Array  # the T scores at the end


def gradient_descent(s: Setting, *, threshold: float = 0.1, lr: float = 1.0, max_steps: int = 10_000_000) -> Descent:
    """Descend from a = 0, w = 0 until the loss is at most `threshold`; p = 0 only.

    `kind="exact"` leaves all T scores free. With `kind="reduced"` the B relevant positions share one score and the
    others stay at zero, so that Δa is the parameter.
    """
    if s.p > 0:
        raise BadInput("p", s.p, "0 for gradient descent on all scores")
    threshold = check_threshold(threshold)
    relevant = np.arange(s.T) >= s.T - s.B
    root_d, a, w = np.sqrt(s.d), np.zeros(s.T), 0.0
    losses: list[float] = []
    for _ in range(max_steps):
        attention = np.exp(a - a.max())
        attention /= attention.sum()
        A, noise = attention[relevant].sum(), (attention[~relevant] ** 2).sum()
        losses.append(0.5 * (noise * w * w + (A * w - root_d) ** 2) / s.d)
        if losses[-1] <= threshold:
            steps = log_crossing(range(len(losses))[-2:], losses[-2:], threshold)
            return Descent(lr * (steps or 0.0), np.array(losses), a)
        # dL/dα_t (Eq. 8), then through the softmax
        by_attention = np.where(relevant, w * (A * w - root_d), attention * w * w) / s.d
        by_score = attention * (by_attention - attention @ by_attention)
        if s.kind == "reduced":
            by_score = np.where(relevant, by_score[relevant].sum(), 0.0)
        w -= lr * (noise * w + A * (A * w - root_d)) / s.d
        a -= lr * by_score
    raise NoConvergence(f"the loss did not reach {threshold:g} within {max_steps} steps")
