"""When an event happens, as probabilities: a chance that it happens at all, and a step that is normal in its logarithm.

What has not happened by now happens later, so the distribution of the step is cut off below the present step.
"""

import math
from dataclasses import dataclass

import numpy as np

from .normal import cdf, log_cdf, log_cdf_inverse

ALMOST = 1e-9  # probabilities are kept this far from 0 and 1, where their logarithms are still numbers
LARGEST = 700.0  # logarithm of a step that is still a number; minus it stands for the logarithm of 0


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation of the logarithm of a step, and the probability that the event happens at all."""

    mean: float
    spread: float
    probability: float

    def passed(self, step: float) -> float:
        """Probability that an event that happens has happened by a step."""
        return cdf((_log(step) - self.mean) / self.spread)

    def not_yet(self, now: float) -> float:
        """The probability that the event happens at all, given that it has not by now."""
        waiting = self.probability * cdf((self.mean - _log(now)) / self.spread)
        return waiting / (waiting + (1 - self.probability)) if waiting else 0.0

    def after(self, now: float, since: float = 0.0) -> "Survival":
        """What it says of an event that has not happened by now, whose probability takes account of that already; of
        steps counted from `since`."""
        return Survival(now, self.mean, self.spread, self.probability, since)


@dataclass(frozen=True)
class Survival:
    """The step of an event that has not happened by step `now`."""

    now: float
    mean: float  # of the logarithm of the steps since `since`, before it is cut off at the present one
    spread: float
    probability: float  # that the event happens at all
    since: float = 0.0  # the step from which on steps are counted

    def by(self, step: float) -> float:
        """Probability that the event has happened by a step.

        Examples:
            >>> survival = Survival(now=100, mean=math.log(200), spread=0.1, probability=0.9)
            >>> round(survival.by(200), 3), survival.by(100), round(survival.by(1e6), 3)
            (0.45, 0.0, 0.9)
        """
        if step <= self.now:
            return 0.0
        later, left = (log_cdf((self.mean - _log(x - self.since)) / self.spread) for x in (step, self.now))
        return -self.probability * math.expm1(later - left)

    def within(self, multiple: float) -> float:
        """Probability that the event has happened by a multiple of the present step, counted from `since`."""
        return self.by(self.since + multiple * (self.now - self.since))

    @property
    def soon(self) -> float:
        """Probability that the event happens before twice the present step, counted from `since`."""
        return self.within(2)

    def quantiles(self, *levels: float) -> list[float]:
        """Steps by which the event has happened with these probabilities, if it happens."""
        left = log_cdf((self.mean - _log(self.now - self.since)) / self.spread)
        logs = [self.mean - self.spread * log_cdf_inverse(left + math.log1p(-q)) for q in levels]
        return [max(self.now, self.since + math.exp(min(x, LARGEST))) for x in logs]

    @property
    def median(self) -> float:
        return self.quantiles(0.5)[0]

    def interval(self, level: float) -> tuple[float, float]:
        low, high = self.quantiles(0.5 - level / 2, 0.5 + level / 2)
        return low, high


def _log(step: float) -> float:
    return math.log(step) if step > 0 else -LARGEST


def combine(signal: Estimate, law: Estimate, correlation: float, base: float) -> Estimate:
    """The estimate of a signal and that of a law together.

    Steps are weighted by the inverse of their variances; `correlation` is that of the two errors. Odds multiply: a
    probability of the signal counts by how far it is from `base`, the share of events in the runs it was fitted on.
    """
    spreads = np.array([signal.spread, law.spread], dtype=float)
    weights = spreads**-2 / np.sum(spreads**-2)
    mean = float(weights @ [signal.mean, law.mean])
    parts = weights * spreads
    variance = (1 - correlation) * np.sum(parts**2) + correlation * np.sum(parts) ** 2
    odds = [math.log(p / (1 - p)) for p in np.clip([signal.probability, law.probability, base], ALMOST, 1 - ALMOST)]
    return Estimate(mean, math.sqrt(variance), 1 / (1 + math.exp(odds[2] - odds[0] - odds[1])))
