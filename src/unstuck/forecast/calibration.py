"""From a signal to the fraction of the plateau that has elapsed: the progress law, corrected by finished runs.

The theory says elapsed = erf(sqrt(gain)). Measured runs lie close to that, but not on it: a Transformer has more to
learn than the toy model once attention has moved. So log(plateau / step) is taken from a curve that falls with the
signal, fitted to finished runs by isotonic regression, together with the spread of runs around it.

Where few tokens compete, attention starts close to its final value: it rises early, and most of the plateau is spent on
the values. Where many tokens compete it rises late. So a curve can be tilted by the logarithm of the attention to the
relevant tokens at the start, which the first row of a run has.

A calibration of one task does not hold for another. `by_theory` is the progress law itself; only the spread is fitted.
It is for tasks of several steps, such as recall, where it is more accurate than the corrected law.
"""

import itertools
import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
KNOTS = 14  # quantiles of the signal at which a curve is stored
ROUNDS = 20  # of fitting curve and tilt in turns
TILTED = (0.03, 4.0)  # values of a signal between which the tilt depends on it; it is constant outside
LAW_GAINS, LAW_KNOTS = (1e-3, 6.0), 40  # range and number of gains at which the law is tabulated
WITHIN_80 = 1.2816  # standard deviations that hold 80% of a normal distribution
MIN_SPREAD = 0.02  # of log(plateau / step): no forecast claims more precision than 2%
MIN_RESIDUAL = 0.03  # of log(plateau / step): bounds the weights of the tilt's fit


@dataclass(frozen=True)
class Calibration:
    """For values of a signal: the median of log(plateau / step), and its spread."""

    signal: str
    at: list[float]  # values of the signal
    ahead: list[float]  # log(plateau / step)
    spread: list[float]  # its standard deviation
    runs: int  # that it was fitted on
    centre: float = 0.0  # logarithm of the attention at the start that the curve is for
    #: a and b of (a + b log value) (log attention at the start - centre), which is added to `ahead`.
    tilt: tuple[float, float] = (0.0, 0.0)

    def read(self, value: float, chance: float | None = None) -> tuple[float, float]:
        """log(plateau / step) and its spread for a value of the signal; `chance` is the logarithm of the attention to
        the relevant tokens at the start, where it is known."""
        ahead, spread = (float(np.interp(value, self.at, column)) for column in (self.ahead, self.spread))
        if chance is not None:
            ahead += float(_tilts(value, chance - self.centre) @ self.tilt)
        return max(ahead, 0.0), spread

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def calibrate(
    signal: str,
    values: ArrayLike,
    ahead: ArrayLike,
    size: ArrayLike,
    runs: int,
    chance: ArrayLike | None = None,
) -> Calibration:
    """Fit to (value of the signal, log(plateau / step)) of many rows of many runs, tilted by `chance` if that is given.
    The spread is measured on groups of rows (`size`) that the curve was not fitted on: 80% lie within 1.28 spreads."""
    x, y, names = np.asarray(values, dtype=float), np.asarray(ahead, dtype=float), np.asarray(size)
    centre = 0.0 if chance is None else float(np.mean(np.asarray(chance)))
    off = np.zeros(len(x)) if chance is None else np.asarray(chance, dtype=float) - centre
    knots = np.unique(np.quantile(x, np.linspace(0, 1, KNOTS)))
    missed = np.empty(len(x))
    for name in np.unique(names):
        away = names != name
        curve, tilt = _fitted(x[away], y[away], off[away])
        predicted = np.interp(x[~away], *curve) + _tilts(x[~away], off[~away]) @ tilt
        missed[~away] = np.abs(y[~away] - predicted)
    curve, tilt = _fitted(x, y, off)
    level, spreads = np.interp(knots, *curve), _spread(x, missed, knots)
    slopes = (float(tilt[0]), float(tilt[1]))
    return Calibration(signal, knots.tolist(), level.tolist(), spreads.tolist(), runs, centre, slopes)


def by_theory(signal: str, gains: ArrayLike, ahead: ArrayLike, runs: int) -> Calibration:
    """elapsed = erf(sqrt(gain)), with the spread of (gain, log(plateau / step)) of many rows of many runs around it."""
    x, y = np.asarray(gains, dtype=float), np.asarray(ahead, dtype=float)
    knots = np.unique(np.quantile(x, np.linspace(0, 1, KNOTS)))
    spreads = _spread(x, np.abs(y - _law(x)), knots)
    at = np.geomspace(*LAW_GAINS, LAW_KNOTS)
    return Calibration(signal, at.tolist(), _law(at).tolist(), np.interp(at, knots, spreads).tolist(), runs)


def _law(gains: Array) -> Array:
    """log(plateau / step) where erf(sqrt(gain)) of the plateau has elapsed."""
    from scipy.special import erf

    return np.asarray(-np.log(erf(np.sqrt(np.maximum(gains, LAW_GAINS[0])))))


def _spread(x: Array, missed: Array, knots: Array) -> Array:
    """Spread at each knot, such that 80% of the residuals `missed` near it lie within 1.28 spreads."""
    edges = np.concatenate([[-np.inf], (knots[1:] + knots[:-1]) / 2, [np.inf]])
    spread = []
    for low, high in itertools.pairwise(edges):
        near = (x >= low) & (x < high)
        spread.append(float(np.quantile(missed[near], 0.8)) / WITHIN_80 if near.any() else np.nan)
    known = np.isfinite(spread)
    return np.maximum(np.interp(knots, knots[known], np.array(spread)[known]), MIN_SPREAD)


def _fitted(x: Array, y: Array, off: Array) -> tuple[tuple[Array, Array], Array]:
    """The falling curve and its tilt, fitted in turns; the tilt by least absolute deviations."""
    tilt = np.zeros(2)
    curve = _falling(x, y)
    if not off.any():
        return curve, tilt
    design = _tilts(x, off)
    for _ in range(ROUNDS):
        curve = _falling(x, y - design @ tilt)
        rest = y - np.interp(x, *curve)
        weight = 1 / np.sqrt(np.maximum(np.abs(rest - design @ tilt), MIN_RESIDUAL))
        tilt[:] = np.linalg.lstsq(design * weight[:, None], rest * weight, rcond=None)[0]
    return curve, tilt


def _tilts(value: ArrayLike, off: ArrayLike) -> Array:
    """The factors of the two numbers of a tilt."""
    logs = np.log(np.clip(value, *TILTED))
    return np.stack([np.asarray(off, dtype=float), np.asarray(off, dtype=float) * logs], axis=-1)


def _falling(x: Array, y: Array) -> tuple[Array, Array]:
    """The curve that falls with x and is nearest to y."""
    from scipy.optimize import isotonic_regression  # takes half a second, which a training run need not wait for

    order = np.argsort(x, kind="stable")
    return x[order], np.asarray(isotonic_regression(y[order], increasing=False).x)


@cache
def shipped() -> dict[str, Calibration]:
    """The calibrations in the package, written by tools/calibrate.py from the runs under results/."""
    text = (files("unstuck.forecast") / "calibration.json").read_text(encoding="utf-8")
    return {e["signal"]: Calibration(**{**e, "tilt": tuple(e["tilt"])}) for e in json.loads(text)["calibrations"]}
