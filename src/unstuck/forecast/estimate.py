"""Estimates of a step, normal in its logarithm: of a signal, of a law, of both together, given the present step.

What has not happened by now happens later, so a distribution is cut off below the present step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

REFUTED = 0.99  # probability given to what has not happened, from which on an estimate is left out
ERROR_CORRELATION = 0.3  # between the errors of law and signal: both rest on smaller runs
CERTAIN = 1 - 1e-9  # probability from which on the part that is left of a distribution cannot be computed


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation of the logarithm of a step."""

    mean: float
    spread: float

    def passed(self, log_now: float) -> float:
        """Probability that the step lies before the present one."""
        return 0.5 * math.erfc((self.mean - log_now) / (self.spread * math.sqrt(2)))

    def is_refuted(self, log_now: float) -> bool:
        """Should what it predicts have happened by now?"""
        return self.passed(log_now) > REFUTED


@dataclass(frozen=True)
class StepDistribution:
    """Where the step lies if it has not come by now."""

    estimate: Estimate
    log_now: float

    def quantiles(self, *levels: float) -> list[float]:
        mean, passed = self.estimate.mean, self.estimate.passed(self.log_now)
        if passed > CERTAIN:
            mean, passed = self.log_now, 0.5
        return [math.exp(mean + self.estimate.spread * _normal_quantile(passed + (1 - passed) * q)) for q in levels]

    @property
    def median(self) -> float:
        return self.quantiles(0.5)[0]

    def interval(self, level: float) -> tuple[float, float]:
        low, high = self.quantiles(0.5 - level / 2, 0.5 + level / 2)
        return low, high


def _normal_quantile(level: float) -> float:
    """Of the standard normal distribution, without SciPy, which takes longer to import than a forecast to make."""
    if not 0 < level < 1:
        return math.copysign(math.inf, level - 0.5)
    return NormalDist().inv_cdf(level)


def combine(estimates: Sequence[Estimate]) -> Estimate:
    """One estimate of several, weighted by the inverse of their variances; their errors are correlated."""
    spreads = np.array([e.spread for e in estimates])
    weights = spreads**-2 / np.sum(spreads**-2)
    mean = float(np.dot(weights, [e.mean for e in estimates]))
    parts = weights * spreads
    variance = (1 - ERROR_CORRELATION) * np.sum(parts**2) + ERROR_CORRELATION * np.sum(parts) ** 2
    return Estimate(mean, math.sqrt(variance))
