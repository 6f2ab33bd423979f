"""The survival model of forecasts: a mixture cure model around the progress law.

For features x of a run at step t, the event happens at all with probability π(x) = logistic(x·c). If it does, the
logarithm of its step is normal with mean log t - log erf(√gain) + q(x)·b and standard deviation exp(x·a), cut off below
log t. The mean is that of the progress law, with a correction quadratic in the features. Coefficients are fitted by
penalised maximum likelihood on runs that emerged, were stopped before (censored), or cannot emerge (`fitting.py`).

Boag 1949 and Farewell 1982 describe mixture cure models. `spread` and `elapsed` correct the standard deviation by what
was found on sizes left out (conformal calibration), at the elapsed fraction that the model itself states.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .features import FAINT_GAIN, NAMES
from .survival import Estimate

Array = NDArray[np.float64]
WIDEST = 4.0  # standard deviations from the mean at which a feature is cut off: beyond, a parabola would lead astray
_erf = np.vectorize(math.erf, otypes=[float])
SPREADS = (math.exp(-4.0), math.exp(1.5))  # of the logarithm of the step: 2% to a factor of 4.5
LOGITS = 8.0  # largest logit of a probability: 0.9997


@dataclass(frozen=True)
class Model:
    """Fitted coefficients for one kind of evidence."""

    kind: str
    centre: list[float]  # of each feature
    scale: list[float]
    location: list[float]  # b: intercept, features, products of two features
    spread: list[float]  # a: intercept, features
    cure: list[float]  # c: intercept, features
    elapsed: list[float]  # stated fractions elapsed, rising,
    factor: list[float]  # at which the standard deviation is multiplied by this
    distance: float  # of features from their centre that 1 in 100 moments of the training runs exceeds
    inverse: list[list[float]]  # inverse covariance of the features, for that distance
    base: float  # share of the runs, one vote a run, in which the event happens
    runs: int
    families: list[str]  # of runs that it was fitted on
    correlation: float = 0.0  # between the errors of this model and of a law of sizes

    def estimate(self, x: Array, now: float) -> Estimate:
        """When the event happens, for features at a step."""
        z = self.standardised(x)
        mean = float(law(x) + quadratic(z) @ self.location)
        spread = float(np.exp(np.clip(linear(z) @ self.spread, *np.log(SPREADS))))
        stated = math.exp(-max(mean, 0.0))
        spread *= float(np.interp(stated, self.elapsed, self.factor))
        probability = 1 / (1 + math.exp(-float(np.clip(linear(z) @ self.cure, -LOGITS, LOGITS))))
        return Estimate(math.log(now) + mean, spread, probability)

    def standardised(self, x: Array) -> Array:
        return np.clip((x - self.centre) / self.scale, -WIDEST, WIDEST)

    def is_unlike(self, x: Array) -> bool:
        """Are these features further from those of the training runs than 99 in 100 of theirs?"""
        away = (x - np.asarray(self.centre)) / self.scale
        return bool(math.sqrt(max(0.0, away @ np.asarray(self.inverse) @ away)) > self.distance)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def digest(self) -> str:
        """Names these coefficients in a forecast."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:12]


def law(x: Array) -> Array:
    """log(end / now) by the progress law, for features along the last axis."""
    gain = np.exp(x[..., NAMES.index("gain")]) - FAINT_GAIN
    return np.asarray(-np.log(_erf(np.sqrt(np.maximum(gain, FAINT_GAIN)))))


def linear(z: Array) -> Array:
    """1 and the features."""
    return np.concatenate([np.ones((*z.shape[:-1], 1)), z], axis=-1)


def quadratic(z: Array) -> Array:
    """1, the features, and all products of two."""
    products = [z[..., i:] * z[..., i : i + 1] for i in range(z.shape[-1])]
    return np.concatenate([linear(z), *products], axis=-1)


@cache
def shipped() -> dict[str, Model]:
    """The models in the package, written by tools/calibrate.py from the runs under results/."""
    text = (files("unstuck.forecast") / "model.json").read_text(encoding="utf-8")
    return {entry["kind"]: Model(**entry) for entry in json.loads(text)["models"]}
