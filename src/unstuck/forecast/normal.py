"""The normal distribution and its logarithm far into the tails; SciPy takes longer to import than a forecast takes."""

import math
from statistics import NormalDist

LOWEST = -37.0  # standard deviations below which `math.erfc` rounds to 0
_NORMAL = NormalDist()


def cdf(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


def log_cdf(z: float) -> float:
    """Logarithm of the probability of a value below z; below -37 by its asymptotic series (Abramowitz and Stegun
    26.2.12)."""
    if z > 0:
        return math.log1p(-cdf(-z))
    if z > LOWEST:
        return math.log(cdf(z))
    return -z * z / 2 - math.log(-z * math.sqrt(2 * math.pi)) + math.log1p(-1 / z**2 + 3 / z**4)


def log_cdf_inverse(y: float) -> float:
    """The value below which lies a probability with this logarithm."""
    if y > math.log(0.5):
        above = -math.expm1(y)
        return -_NORMAL.inv_cdf(above) if above > 0 else math.inf
    if y > log_cdf(LOWEST):
        return _NORMAL.inv_cdf(math.exp(y))
    if y == -math.inf:
        return -math.inf
    z = -math.sqrt(-2 * y)
    for _ in range(4):  # Newton: the slope of log_cdf is about -z there
        z -= (log_cdf(z) - y) / -z
    return z
