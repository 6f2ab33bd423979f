"""Laws from all runs: those that emerged, and those censored at their last step.

    log T_plateau of a run = X beta + s_size u + s_seed v,    u shared by the runs of one size, v each run's own

u and v are standard normal: a log-normal accelerated failure time model in which the seeds of a size share the error of
the law at that size. The likelihood of a size's emerged runs is that of a normal vector; given them, u is normal too,
and the probability that the censored runs last longer is an average over u, taken at evenly spaced points. Where sizes
differ far more than seeds that probability is nearly a step function of u: Gauss-Hermite nodes miss it, evenly spaced
nodes are accurate to 1e-8 up to a ratio of ten. Intervals are by profile likelihood, with the cut-off that makes them
exact for a linear model without censoring.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

Array = NDArray[np.float64]

NODES = np.linspace(-12, 12, 241)
LOG_WEIGHTS = special.log_softmax(-0.5 * NODES**2)
SMALLEST = -8.0  # logarithm of the smallest standard deviation that is tried


@dataclass(frozen=True)
class Data:
    """Runs: X with a constant first, (n, k); log of the plateau, or of the last step; which is which; their size."""

    X: Array
    y: Array
    censored: NDArray[np.bool_]
    size: NDArray[np.int64]

    @property
    def sizes(self) -> int:
        return int(self.size.max()) + 1

    @property
    def repeated(self) -> bool:
        """Are there several runs of a size? Otherwise the spreads of sizes and of runs cannot be separated."""
        return self.sizes < len(self.y)

    def part(self, which: NDArray[np.bool_]) -> "Data":
        _, size = np.unique(self.size[which], return_inverse=True)
        return Data(self.X[which], self.y[which], self.censored[which], size.ravel())

    @property
    def informed(self) -> float:
        """The number of sizes with an emerged run."""
        return float((self.emerged_of_size > 0).sum())

    @property
    def shrunk(self) -> float:
        """The factor by which the most likely variance is too small, since the law was fitted to the same units."""
        return self.units / max(1.0, self.units - self.X.shape[1])

    @property
    def units(self) -> float:
        """Independent observations of the error of the law: sizes, or runs where none share a size."""
        return self.informed if self.repeated else float((~self.censored).sum())

    @cached_property
    def emerged_of_size(self) -> Array:
        return np.bincount(self.size, ~self.censored, self.sizes).astype(float)


def log_likelihood(data: Data, beta: Array, log_seed: float, log_size: float) -> float:
    """Of the runs, with the error that the runs of a size share."""
    return with_slope(data, beta, log_seed, log_size)[0]


def with_slope(data: Data, beta: Array, log_seed: float, log_size: float) -> tuple[float, Array]:
    """The log likelihood, and its derivatives by beta, log_seed and log_size, (k + 2,)."""
    seed2, size2 = math.exp(2 * log_seed), (math.exp(2 * log_size) if data.repeated else 0.0)
    e = data.y - data.X @ beta
    seen, n = ~data.censored, data.emerged_of_size
    total = np.bincount(data.size[seen], e[seen], data.sizes)
    squares = np.bincount(data.size[seen], e[seen] ** 2, data.sizes)
    spread = seed2 + n * size2
    shift = size2 * total / spread  # of what a size shares, given its emerged runs
    quadratic = (squares - shift * total) / seed2
    logdet = np.where(n > 0, (n - 1) * math.log(seed2) + np.log(spread), 0.0)
    found = -0.5 * float(np.sum(n * math.log(2 * math.pi) + logdet + quadratic))
    by_beta = data.X[seen].T @ (e[seen] - shift[data.size[seen]]) / seed2
    by_seed2 = 0.5 * np.sum(
        (quadratic - shift * total / spread) / seed2 - np.where(n > 0, (n - 1) / seed2 + 1 / spread, 0)
    )
    by_size2 = 0.5 * np.sum((total / spread) ** 2 - n / spread)
    if data.censored.any():
        late, of = data.censored, data.size[data.censored]
        width = np.sqrt(size2 * seed2 / spread)  # standard deviation of the shift
        z = (e[late][:, None] - shift[of, None] - width[of, None] * NODES) / math.sqrt(seed2)  # (censored, nodes)
        beyond = special.log_ndtr(-z)
        inside = np.tile(LOG_WEIGHTS, (data.sizes, 1))
        np.add.at(inside, of, beyond)
        top = inside.max(1)
        log_mean = top + np.log(np.exp(inside - top[:, None]).sum(1))
        found += float(log_mean.sum())
        # The weight of each z: the share of its node times the derivative of the log probability.
        r = -np.exp(inside - log_mean[:, None])[of] * np.exp(-0.5 * (z**2 + math.log(2 * math.pi)) - beyond)
        each, at_nodes = r.sum(1) / math.sqrt(seed2), r @ NODES / math.sqrt(seed2)
        of_size = np.zeros((data.sizes, data.X.shape[1]))
        np.add.at(of_size, data.size[seen], data.X[seen])
        by_beta += each @ ((size2 / spread)[of, None] * of_size[of] - data.X[late])
        rate = np.divide(0.5, width, out=np.zeros_like(width), where=width > 0)  # of the width by its square
        by_seed2 += each @ (shift / spread)[of] - at_nodes @ (rate * n * (size2 / spread) ** 2)[of]
        by_seed2 -= 0.5 * float((r * z).sum()) / seed2
        by_size2 -= seed2 * (each @ (total / spread**2)[of] + at_nodes @ (rate * seed2 / spread**2)[of])
    return found, np.array([*by_beta, 2 * seed2 * by_seed2, 2 * size2 * by_size2])


@dataclass(frozen=True)
class Fit:
    """The most likely law and its uncertainty."""

    data: Data
    beta: Array
    log_seed: float
    log_size: float
    log_likelihood: float
    covariance: Array  # of beta

    @property
    def seed_spread(self) -> float:
        """Standard deviation of the logarithm over seeds of one size."""
        return math.exp(self.log_seed)

    @property
    def size_spread(self) -> float:
        """Standard deviation of the error of the law at a size."""
        return math.exp(self.log_size) if self.data.repeated else 0.0

    @property
    def freedom(self) -> float:
        """Degrees of freedom of sizes with an emerged run, or of runs where none share a size. Seeds do not count: with
        few sizes the most likely spread of sizes is often 0 when the true one is not, and intervals would be too short.
        """
        return max(1.0, self.data.units - self.data.X.shape[1])

    def quantile(self, level: float) -> float:
        return float(stats.t.ppf(0.5 + level / 2, self.freedom))

    def log_likelihood_of(self, other: Data) -> float:
        """Of runs of held-out sizes."""
        seed, size = self.log_seed, self.log_size
        if not self.data.repeated or not other.repeated:  # then runs carry all spread
            seed, size = 0.5 * math.log(self.seed_spread**2 + self.size_spread**2), SMALLEST
        return log_likelihood(other, self.beta, seed, size)

    def interval(self, i: int, level: float) -> tuple[float, float]:
        """Of beta[i], by profile likelihood."""
        k = self.data.X.shape[1]
        t = self.quantile(level)
        # of twice the log likelihood, exact if none is censored
        cut = (self.freedom + k) * math.log1p(t**2 / self.freedom)
        se = math.sqrt(self.covariance[i, i])
        return self._bound(i, -t * se, cut), self._bound(i, t * se, cut)

    def _bound(self, i: int, step: float, cut: float) -> float:
        """Where the profile has fallen by half of `cut`, on the side of `step`."""
        start = np.array([*np.delete(self.beta, i), self.log_seed, self.log_size])

        def excess(distance: float) -> float:
            nonlocal start
            fixed = self.beta[i] + distance

            def loss(x: Array) -> tuple[float, Array]:
                value, slope = _likelihood_of(self.data, np.array([*np.insert(x[:-2], i, fixed), *x[-2:]]))
                return -value, -np.delete(slope, i)

            best = _minimise(loss, start)
            start = best.x
            return float(2 * (self.log_likelihood + best.fun) - cut)

        inner, below = 0.0, -cut
        outer, above = step, excess(step)
        for _ in range(12):
            if above > 0:
                break
            inner, below, outer = outer, above, 1.6 * outer
            above = excess(outer)
        else:
            return math.copysign(math.inf, step)  # the runs do not bound it
        for _ in range(12):  # the square root of the fall is nearly linear
            lo, hi = math.sqrt(max(0.0, below + cut)), math.sqrt(above + cut)
            at = inner + (outer - inner) * (math.sqrt(cut) - lo) / (hi - lo)
            value = excess(at)
            if abs(value) < 0.01 * cut:
                return float(self.beta[i] + at)
            if value > 0:
                outer, above = at, value
            else:
                inner, below = at, value
        return float(self.beta[i] + at)

    @property
    def new_run_variance(self) -> float:
        """Variance of the log plateau of a new run about the law: a new size and a new seed."""
        own = 1.0 if self.data.repeated else self.data.shrunk  # where no size is shared, runs carry all spread
        return self.data.shrunk * self.size_spread**2 + own * self.seed_spread**2

    def predicted(self, rows: Array, level: float) -> tuple[Array, Array, Array]:
        """Log plateau of a new run for rows of X, and its interval: errors of the law, a new size and a new seed."""
        centre = rows @ self.beta
        doubt = np.einsum("ij,jk,ik->i", rows, self.covariance, rows)
        sd = np.sqrt(doubt + self.new_run_variance)
        t = self.quantile(level)
        return centre, centre - t * sd, centre + t * sd


def fit(data: Data) -> Fit:
    """The most likely law; the search starts from least squares with censored runs at their last step."""
    beta, *_ = np.linalg.lstsq(data.X, data.y, rcond=None)
    spread = math.log(max(1e-3, float(np.std(data.y - data.X @ beta))))
    best = None

    def loss(x: Array) -> tuple[float, Array]:
        value, slope = _likelihood_of(data, x)
        return -value, -slope

    for size in (spread, spread - 3) if data.repeated else (SMALLEST,):
        found = _minimise(loss, np.array([*beta, spread, size]))
        if best is None or found.fun < best.fun - 1e-9:
            best = found
    assert best is not None
    x = best.x
    k = len(beta)
    curvature = _hessian(lambda b: loss(np.array([*b, *x[k:]]))[0], x[:k])
    covariance = np.asarray(np.linalg.pinv(curvature), dtype=float) * data.shrunk
    return Fit(data, x[:k], float(x[k]), float(np.clip(x[k + 1], SMALLEST, 5)), -float(best.fun), covariance)


def _likelihood_of(data: Data, x: Array) -> tuple[float, Array]:
    """Of parameters in one vector, with its slope; standard deviations are bounded."""
    seed, size = np.clip(x[-2:], SMALLEST, 5)
    value, slope = with_slope(data, x[:-2], float(seed), float(size))
    slope[-2:] *= (seed, size) == x[-2:]
    return value, slope


def _minimise(loss: Callable[[Array], tuple[float, Array]], start: Array) -> optimize.OptimizeResult:
    found = optimize.minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-5})
    if not found.success and found.status != 2:  # 2: as good as the arithmetic allows
        options = {"maxiter": 4000, "xatol": 1e-7}
        found = optimize.minimize(lambda x: loss(x)[0], found.x, method="Nelder-Mead", options=options)
    return found


def _hessian(f: Callable[[Array], float], x: Array) -> Array:
    """By central differences, with steps that move the likelihood by about one."""
    k = len(x)
    h = np.full(k, 1e-2)
    f0 = f(x)
    for i in range(k):
        for _ in range(40):
            rise = f(x + h[i] * np.eye(k)[i]) - f0
            if 0.05 < rise < 2:
                break
            h[i] *= 1.5 if rise <= 0.05 else 0.6
    H = np.empty((k, k))
    for i in range(k):
        for j in range(i, k):
            a, b = h[i] * np.eye(k)[i], h[j] * np.eye(k)[j]
            H[i, j] = H[j, i] = (f(x + a + b) - f(x + a - b) - f(x - a + b) + f(x - a - b)) / (4 * h[i] * h[j])
    return H
