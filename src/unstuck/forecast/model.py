"""The survival model of forecasts: a mixture cure model around the progress law.

For features x of a run at step t, the event happens at all with probability π(x) = logistic(x·c). If it does, the
logarithm of its step is normal with mean log t - log erf(√gain) + q(x)·b and standard deviation exp(x·a), cut off below
log t. The mean is that of the progress law, with a correction quadratic in the features. Coefficients are fitted by
penalised maximum likelihood on runs that emerged, were stopped before (censored), or cannot emerge (`fitting.py`).
On tasks that are not in the fit, products of features lead astray: for these there is a second model, with fewer terms.

Boag 1949 and Farewell 1982 describe mixture cure models. `spread` and `elapsed` correct the standard deviation by what
was found on sizes left out (conformal calibration), at the elapsed fraction that the model itself states.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
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
    location: list[float]  # b: intercept, features, products of two features, or the first of these
    spread: list[float]  # a: intercept, features, or the first of these
    cure: list[float]  # c: the same
    elapsed: list[float]  # stated fractions elapsed, rising,
    factor: list[float]  # at which the standard deviation is multiplied by this
    distance: float  # of features from their centre that 1 in 100 moments of the training runs exceeds
    inverse: list[list[float]]  # inverse covariance of the features, for that distance
    base: float  # share of the runs, one vote a run, in which the event happens
    runs: int
    tasks: list[str]  # names of those that it was fitted on
    correlation: float = 0.0  # between the errors of this model and of a law of sizes

    def estimate(self, x: Array, now: float) -> Estimate:
        """When the event happens, for features at a step."""
        z = self.standardised(x)
        mean = float(law(x) + terms(z, len(self.location)) @ self.location)
        spread = float(np.exp(np.clip(terms(z, len(self.spread)) @ self.spread, *np.log(SPREADS))))
        stated = math.exp(-max(mean, 0.0))
        spread *= float(np.interp(stated, self.elapsed, self.factor))
        probability = 1 / (1 + math.exp(-float(np.clip(terms(z, len(self.cure)) @ self.cure, -LOGITS, LOGITS))))
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


def terms(z: Array, many: int | None = None) -> Array:
    """1, the features, and all products of two; or the first of these."""
    found = np.concatenate([np.ones((*z.shape[:-1], 1)), z], axis=-1)
    if many is None or many > found.shape[-1]:
        found = np.concatenate([found, *(z[..., i:] * z[..., i : i + 1] for i in range(z.shape[-1]))], axis=-1)
    return found[..., :many]


@dataclass(frozen=True)
class Models:
    """Of one kind of evidence: a model for runs of the tasks that it was fitted on, and one for all others."""

    known: Model
    others: Model

    def of(self, task: str | None) -> Model:
        """The model for a run of a task; None stands for one that is not in the fit."""
        return self.known if task in self.known.tasks else self.others

    def with_correlation(self, found: float) -> "Models":
        """With a correlation between their errors and those of a law of sizes."""
        return Models(replace(self.known, correlation=found), replace(self.others, correlation=found))

    def as_dicts(self) -> list[dict[str, Any]]:
        return [self.known.as_dict(), self.others.as_dict()]

    @property
    def digest(self) -> str:
        """Names the coefficients of both."""
        return f"{self.known.digest}-{self.others.digest}"


@cache
def shipped() -> dict[str, Models]:
    """The models in the package by kind of evidence, written by tools/calibrate.py from the runs under results/."""
    text = (files("unstuck.forecast") / "model.json").read_text(encoding="utf-8")
    found = [(Model(**known), Model(**others)) for known, others in json.loads(text)["models"]]
    return {known.kind: Models(known, others) for known, others in found}
