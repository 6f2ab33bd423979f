"""From a signal to the part of the plateau that has elapsed: the progress law, corrected by runs.

The theory says elapsed = erf(sqrt(gain)). Measured runs keep close to it but not on it: a Transformer has more to do
than the toy model once attention has moved. So the logarithm of plateau over step is read off a curve that falls with
the signal, fitted to finished runs (isotonic regression), together with how far runs lie from it.
"""

import itertools
import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

Array = NDArray[np.float64]
KNOTS = 14
WITHIN_80 = 1.2816  # standard deviations that hold four fifths of a normal distribution


@dataclass(frozen=True)
class Calibration:
    """For values of a signal: the median of log(plateau / step), and its spread."""

    signal: str
    at: list[float]
    ahead: list[float]  # log(plateau / step)
    spread: list[float]
    runs: int  # it was fitted on

    def read(self, value: float) -> tuple[float, float]:
        """log(plateau / step) and its spread for a value of the signal."""
        ahead, spread = (float(np.interp(value, self.at, column)) for column in (self.ahead, self.spread))
        return ahead, spread

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def calibrate(signal: str, values: ArrayLike, ahead: ArrayLike, size: ArrayLike, runs: int) -> Calibration:
    """Fit to (value of the signal, log(plateau / step)) of many rows of many runs. The spread is that of parts (`size`)
    which the curve was not fitted on: four fifths of their rows lie within 1.28 of it."""
    x, y, names = np.asarray(values, dtype=float), np.asarray(ahead, dtype=float), np.asarray(size)
    knots = np.unique(np.quantile(x, np.linspace(0, 1, KNOTS)))
    missed = np.empty(len(x))
    for name in np.unique(names):
        away = names != name
        missed[~away] = np.abs(y[~away] - np.interp(x[~away], *_falling(x[away], y[away])))
    edges = np.concatenate([[-np.inf], (knots[1:] + knots[:-1]) / 2, [np.inf]])
    spread = []
    for low, high in itertools.pairwise(edges):
        near = (x >= low) & (x < high)
        spread.append(float(np.quantile(missed[near], 0.8)) / WITHIN_80 if near.any() else np.nan)
    known = np.isfinite(spread)
    filled = np.interp(knots, knots[known], np.array(spread)[known])
    level = np.interp(knots, *_falling(x, y))
    return Calibration(signal, knots.tolist(), level.tolist(), np.maximum(filled, 0.02).tolist(), runs)


def _falling(x: Array, y: Array) -> tuple[Array, Array]:
    """The curve that falls with x and is nearest to y."""
    order = np.argsort(x, kind="stable")
    return x[order], np.asarray(isotonic_regression(y[order], increasing=False).x)


@cache
def shipped() -> dict[str, Calibration]:
    """The calibrations that come with the package, written by tools/forecast.py from the runs under results/."""
    text = (files("unstuck.forecast") / "calibration.json").read_text(encoding="utf-8")
    return {entry["signal"]: Calibration(**entry) for entry in json.loads(text)["calibrations"]}
