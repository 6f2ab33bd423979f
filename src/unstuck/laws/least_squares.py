"""Least squares with Student's intervals, by the pseudo-inverse."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LeastSquares:
    """The estimates that minimise the weighted sum of squared residuals, and what their intervals rest on."""

    estimates: Array  # (k,)
    errors: Array  # standard errors of the estimates, (k,)
    freedom: int  # degrees of freedom of the residuals

    def half_widths(self, level: float) -> Array:
        """By how much an interval of this coverage extends on either side of each estimate."""
        return np.asarray(self.errors * stats.t.ppf(0.5 + level / 2, self.freedom), dtype=float)


def least_squares(X: Array, y: Array, weights: Array | None = None) -> LeastSquares:
    """Fit y = X @ estimates; an observation with weight w counts as the mean of w observations.

    Examples:
        >>> least_squares(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0])).estimates.round(9)
        array([1., 2.])
    """
    root = np.ones(len(y)) if weights is None else np.sqrt(weights)
    X, y = X * root[:, None], y * root
    inverse = np.linalg.pinv(X, rcond=1e-15)
    estimates = inverse @ y
    residuals = y - X @ estimates
    freedom = len(y) - int(np.linalg.matrix_rank(X))
    covariance = inverse @ inverse.T * (residuals @ residuals / freedom)
    return LeastSquares(estimates, np.sqrt(np.diag(covariance)), freedom)
