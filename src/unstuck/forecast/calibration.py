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
NORMAL_MAD = 1.4826  # standard deviation over median absolute deviation, for a normal distribution


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


def calibrate(signal: str, values: ArrayLike, ahead: ArrayLike, run: ArrayLike) -> Calibration:
    """Fit to (value of the signal, log(plateau / step)) of many rows of many runs."""
    x, y, names = np.asarray(values, dtype=float), np.asarray(ahead, dtype=float), np.asarray(run)
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    smooth = isotonic_regression(y, increasing=False).x
    knots = np.unique(np.quantile(x, np.linspace(0, 1, KNOTS)))
    edges = np.concatenate([[-np.inf], (knots[1:] + knots[:-1]) / 2, [np.inf]])
    spread = []
    for low, high in itertools.pairwise(edges):
        near = (x >= low) & (x < high)
        spread.append(NORMAL_MAD * float(np.median(np.abs(y - smooth)[near])) if near.any() else np.nan)
    filled = np.interp(knots, knots[np.isfinite(spread)], np.array(spread)[np.isfinite(spread)])
    level = np.interp(knots, x, smooth)
    return Calibration(signal, knots.tolist(), level.tolist(), np.maximum(filled, 0.02).tolist(), len(np.unique(names)))


@cache
def shipped() -> dict[str, Calibration]:
    """The calibrations that come with the package, written by tools/forecast.py from the runs under results/."""
    text = (files("unstuck.forecast") / "calibration.json").read_text(encoding="utf-8")
    return {entry["signal"]: Calibration(**entry) for entry in json.loads(text)["calibrations"]}
