"""From a signal to the part of the plateau that has elapsed: the progress law, corrected by runs.

The theory says elapsed = erf(sqrt(gain)). Measured runs keep close to it but not on it: a Transformer has more to do
than the toy model once attention has moved. So the logarithm of plateau over step is read off a curve that falls with
the signal, fitted to finished runs (isotonic regression), together with how far runs lie from it.

Where attention begins near its end, because few tokens compete, it rises early, and most of the plateau is spent on the
values; where many compete it is the other way round. So a curve can be tilted by the logarithm of the attention that
chance gives to the relevant tokens, which the first row of a run tells.

What is so learnt of one task is not true of the next. `by_theory` is the law as it stands, with nothing fitted but how
far runs lie from it: for tasks of several steps, such as recall, on which it does better than the corrected one.
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
KNOTS = 14
ROUNDS = 20
TILTED = (0.03, 4.0)  # values of a signal between which a tilt changes with it
LAW_GAINS, LAW_KNOTS = (1e-3, 6.0), 40  # gains between which the law is tabled, and at how many
WITHIN_80 = 1.2816  # standard deviations that hold four fifths of a normal distribution


@dataclass(frozen=True)
class Calibration:
    """For values of a signal: the median of log(plateau / step), and its spread."""

    signal: str
    at: list[float]
    ahead: list[float]  # log(plateau / step)
    spread: list[float]
    runs: int  # it was fitted on
    centre: float = 0.0  # log of chance that the curve is for
    tilt: tuple[float, float] = (0.0, 0.0)  # (a + b log value) (log of chance - centre) is added to `ahead`

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
    The spread is that of parts (`size`) which the curve was not fitted on: four fifths of their rows lie within 1.28 of
    it."""
    x, y, names = np.asarray(values, dtype=float), np.asarray(ahead, dtype=float), np.asarray(size)
    centre = 0.0 if chance is None else float(np.mean(np.asarray(chance)))
    off = np.zeros(len(x)) if chance is None else np.asarray(chance, dtype=float) - centre
    knots = np.unique(np.quantile(x, np.linspace(0, 1, KNOTS)))
    missed = np.empty(len(x))
    for name in np.unique(names):
        away = names != name
        curve, tilt = _fitted(x[away], y[away], off[away])
        said = np.interp(x[~away], *curve) + _tilts(x[~away], off[~away]) @ tilt
        missed[~away] = np.abs(y[~away] - said)
    curve, tilt = _fitted(x, y, off)
    level, spreads = np.interp(knots, *curve), _spread(x, missed, knots)
    slopes = (float(tilt[0]), float(tilt[1]))
    return Calibration(signal, knots.tolist(), level.tolist(), spreads.tolist(), runs, centre, slopes)


def by_theory(signal: str, gains: ArrayLike, ahead: ArrayLike, runs: int) -> Calibration:
    """elapsed = erf(sqrt(gain)), and how far (gain, log(plateau / step)) of many rows of many runs lie from it."""
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
    """At each knot, such that four fifths of what was missed near it lie within 1.28 of it."""
    edges = np.concatenate([[-np.inf], (knots[1:] + knots[:-1]) / 2, [np.inf]])
    spread = []
    for low, high in itertools.pairwise(edges):
        near = (x >= low) & (x < high)
        spread.append(float(np.quantile(missed[near], 0.8)) / WITHIN_80 if near.any() else np.nan)
    known = np.isfinite(spread)
    return np.maximum(np.interp(knots, knots[known], np.array(spread)[known]), 0.02)


def _fitted(x: Array, y: Array, off: Array) -> tuple[tuple[Array, Array], Array]:
    """The falling curve and its tilt, in turns, until they fit together; the tilt by least absolute deviations."""
    tilt = np.zeros(2)
    curve = _falling(x, y)
    if not off.any():
        return curve, tilt
    design = _tilts(x, off)
    for _ in range(ROUNDS):
        curve = _falling(x, y - design @ tilt)
        rest = y - np.interp(x, *curve)
        weight = 1 / np.sqrt(np.maximum(np.abs(rest - design @ tilt), 0.03))
        tilt[:] = np.linalg.lstsq(design * weight[:, None], rest * weight, rcond=None)[0]
    return curve, tilt


def _tilts(value: ArrayLike, off: ArrayLike) -> Array:
    """What the two numbers of a tilt are multiplied by."""
    logs = np.log(np.clip(value, *TILTED))
    return np.stack([np.asarray(off, dtype=float), np.asarray(off, dtype=float) * logs], axis=-1)


def _falling(x: Array, y: Array) -> tuple[Array, Array]:
    """The curve that falls with x and is nearest to y."""
    from scipy.optimize import isotonic_regression  # half a second that a training run need not wait

    order = np.argsort(x, kind="stable")
    return x[order], np.asarray(isotonic_regression(y[order], increasing=False).x)


@cache
def shipped() -> dict[str, Calibration]:
    """The calibrations that come with the package, written by tools/calibrate.py from the runs under results/."""
    text = (files("unstuck.forecast") / "calibration.json").read_text(encoding="utf-8")
    return {e["signal"]: Calibration(**{**e, "tilt": tuple(e["tilt"])}) for e in json.loads(text)["calibrations"]}
