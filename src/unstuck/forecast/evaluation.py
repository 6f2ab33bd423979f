"""How good forecasts are: of held-out runs, of runs that cannot emerge, of curves that only drift.

A run is forecast at the steps 100 * 1.2^k, which do not depend on its outcome. All forecasts are scored, grouped by the
fraction of the plateau that had elapsed.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from unstuck.columns import GRAD_NORM, TEST_ACCURACY, head_columns
from unstuck.curve import Curve

from .calibration import Calibration
from .estimate import Estimate, StepDistribution, combine
from .fitting import Fitted
from .forecaster import Forecaster
from .outcome import Forecast, Outcome
from .runs import ENDS, MeasuredRun, moments
from .signals import SIGNALS, available

Answer = tuple[float, float, float]  # predicted step and interval; NaN where there is none
NO_ANSWER: Answer = (math.nan, math.nan, math.nan)
EDGES = [0.0, 0.15, 0.3, 0.5, 0.7, 1.0]  # of the groups of fractions elapsed
GROUPS = [f"{100 * a:.0f}-{b:.0%}" for a, b in itertools.pairwise(EDGES)]
LEVEL = 0.8  # coverage that intervals should have
NEGATIVE_CONTROL = {"T": 32, "d": 16, "B": 1}  # size of the runs of tools/negative_controls.py
WITH_LAW, CORRECTED = "gain and law", "two_step_gain, corrected"
NEVER = 1e3  # times the present step: stands for a line that never reaches the threshold
SETTINGS = ("run_id", "name", "d", "T", "B", "p", "tokens", "pairs", "seed", "layers", "layer_norm")  # kept of a run
#: Curves that only drift: standard deviation of a measurement, and of a random walk over the curve, both of logarithms.
NOISE = {"3% a look": (0.03, 0.0), "a walk of 10%": (0.0, 0.1), "a walk of 30%": (0.0, 0.3)}

Calibrations = dict[str, Calibration]


# -- of runs that emerged


def forecasts(runs: list[MeasuredRun], fitted: Fitted) -> pd.DataFrame:
    """A row for each run, moment and method: the predicted step (`said`), its interval, and the true `plateau`."""
    rows = []
    for run in runs:
        known = {k: run.settings.get(k) for k in SETTINGS}
        has_law = run.is_regression and run.is_standard and not run["p"]  # the law is one of d and T/B
        prior = fitted.prior(run.settings) if has_law else None
        methods = _usable(run.curve, fitted.calibrations)
        for step, part in run.moments():
            moment = {"step": step, "plateau": run["plateau"], "elapsed": round(step / run["plateau"], 4)}
            answers = {**_baselines(run, step, part, prior), **_by_signals(part, methods, fitted.calibrations, prior)}
            for method, (said, low, high) in answers.items():
                rows.append({**known, **moment, "method": method, "said": said, "low": low, "high": high})
    return pd.DataFrame(rows)


def _baselines(run: MeasuredRun, step: float, part: Curve, prior: tuple[float, float] | None) -> dict[str, Answer]:
    """Predictions without the forecaster."""
    steps = {
        "twice elapsed": 2 * step,
        "loss extrapolated": extrapolated(part, *ENDS[run["name"]]),
        "progress law": by_progress(part),
    }
    found: dict[str, Answer] = {name: (said, math.nan, math.nan) for name, said in steps.items()}
    if prior is not None:  # what has not happened by now happens later, for the law alone as for the forecaster
        law = combine([Estimate(math.log(prior[0]), prior[1])])
        distribution = StepDistribution(law, math.log(part.steps[-1]))
        found["law"] = (distribution.median, *distribution.interval(LEVEL))
    return found


def _by_signals(
    part: Curve, methods: list[str], known: Calibrations, prior: tuple[float, float] | None
) -> dict[str, Answer]:
    """Predictions of each signal, alone and with the law."""
    found = {}
    for name in methods:
        found[name] = _answer(Forecaster(name, None, LEVEL, known).from_attention(part))
        if prior is not None:
            found[f"{name} and law"] = _answer(Forecaster(name, prior, LEVEL, known).from_attention(part))
    if "two_step_gain" in methods:  # by the calibration of regression runs
        corrected = Forecaster("two_step_gain", None, LEVEL, {"two_step_gain": known["gain"]})
        found[CORRECTED] = _answer(corrected.from_attention(part))
    return found


def extrapolated(part: Curve, column: str, threshold: float) -> float:
    """The step at which a straight line through the last third of a curve reaches the threshold; the present one if the
    line has passed it."""
    now = float(part.steps.max())
    last = part.rows(part.steps >= now * 2 / 3)
    if len(last) < 2:
        return 2 * now
    slope, offset = np.polyfit(last.steps, last.values(column), 1)
    if slope == 0 or (slope > 0) != (column == TEST_ACCURACY):  # flat or in the wrong direction
        return NEVER * now
    return float(np.clip((threshold - offset) / slope, now, NEVER * now))


def by_progress(part: Curve) -> float:
    """By the theory's law, which has no parameter: the fraction that has elapsed is erf(√Δa)."""
    elapsed = math.erf(math.sqrt(SIGNALS["gain"][1](part)[-1]))
    return float(part.steps.max()) / max(elapsed, 1 / NEVER)


def _answer(said: Forecast) -> Answer:
    interval = said.interval()
    return NO_ANSWER if said.step is None or interval is None else (said.step, *interval)


def _usable(curve: Curve, known: Calibrations) -> list[str]:
    """The calibrated signals that a curve has the measures for."""
    there = available(curve)
    return [name for name in known if name in there]


def scores(table: pd.DataFrame) -> pd.DataFrame:
    """By method and fraction elapsed: how many forecasts and answers, median error, bias, pinball loss, coverage."""
    table = table.assign(
        error=np.log(table["said"] / table["plateau"]),
        group=pd.cut(table["elapsed"], EDGES, labels=GROUPS),
    )
    rows = []
    for (method, group), part in table.groupby(["method", "group"], observed=True, sort=False):
        said = part.dropna(subset="said")
        row = {"method": method, "elapsed": group, "forecasts": len(part), "answered": len(said)}
        row |= {"error": float(np.expm1(said["error"].abs().median())), "bias": float(np.expm1(said["error"].median()))}
        within = said.dropna(subset="low")
        row["coverage"] = float(((within["low"] <= within["plateau"]) & (within["plateau"] <= within["high"])).mean())
        row["pinball"] = float(np.mean([_pinball(within, q) for q in (0.1, 0.5, 0.9)])) if len(within) else math.nan
        rows.append(row)
    return pd.DataFrame(sorted(rows, key=lambda row: GROUPS.index(row["elapsed"])))


def _pinball(part: pd.DataFrame, q: float) -> float:
    column = {0.1: "low", 0.5: "said", 0.9: "high"}[q]
    missed = np.log(part["plateau"]) - np.log(part[column])
    return float(np.maximum(q * missed, (q - 1) * missed).mean())


# -- of runs that did not emerge, or cannot


def ended_too_soon(unfinished: list[MeasuredRun], known: Calibrations) -> pd.DataFrame:
    """For runs that had not emerged by their last step, and each signal: how often it was `asked`, how often it
    `answered`, and how many intervals had `ended` before that step, which is all that is known of these runs."""
    rows = []
    for run in unfinished:
        for name in _usable(run.curve, known):
            answers = list(_asked(Forecaster(name, None, LEVEL, known), run.curve, run["plateau"]))
            ends = [interval[1] for said in answers if (interval := said.interval()) is not None]
            counts = {"asked": len(answers), "answered": len(ends), "ended": sum(end < run["plateau"] for end in ends)}
            rows.append({**{k: run[k] for k in ("run_id", "name", "p")}, "method": name, **counts})
    return pd.DataFrame(rows)


def false_signs(curves: pd.DataFrame, fitted: Fitted) -> pd.DataFrame:
    """For runs that cannot emerge (tools/negative_controls.py) and each signal: is the signal present at their end
    (`said`), and how often before (`signs` of `asked`)? For signal and law together: is an end predicted?"""
    rows = []
    known, prior = fitted.calibrations, fitted.prior(NEGATIVE_CONTROL)
    for (kind, seed), rows_of_run in curves.groupby(["kind", "seed"]):
        curve = Curve.from_frame(rows_of_run, "run")
        forecasters = {name: Forecaster(name, None, LEVEL, known) for name in _usable(curve, known)}
        forecasters[WITH_LAW] = Forecaster("gain", prior, LEVEL, known)
        for method, forecaster in forecasters.items():
            *before, last = (
                said.outcome is Outcome.EMERGES
                for said in [*_asked(forecaster, curve), forecaster.from_attention(curve)]
            )
            row = {"kind": kind, "seed": seed, "method": method, "said": float(last)}
            rows.append({**row, "signs": sum(before), "asked": len(before)})
    return pd.DataFrame(rows)


def _asked(forecaster: Forecaster, curve: Curve, until: float | None = None) -> Iterator[Forecast]:
    """The forecasts at every moment of a curve."""
    return (forecaster.from_attention(part) for _, part in moments(curve, until or float(curve.steps.max())))


def signs_in_noise(known: Calibrations, curves: int = 30, heads: int = 8, rows: int = 60) -> pd.DataFrame:
    """Simulated curves over 1,200 steps of heads whose attention to the relevant token only drifts: how often is the
    signal present (`signs` of `asked`)?"""
    found = []
    forecaster = Forecaster("gain", None, LEVEL, known)
    for kind, (alone, walk) in NOISE.items():
        for seed in range(curves):
            rng = np.random.default_rng([seed, *map(ord, kind)])
            drift = rng.standard_normal((rows, heads)).cumsum(0) * walk / math.sqrt(rows)
            logs = drift - drift[0] + alone * rng.standard_normal((rows, heads))
            attention = (np.exp(logs) / NEGATIVE_CONTROL["T"]).reshape(rows, -1, 4)  # (rows, layers, heads)
            curve = Curve.from_rows({"step": 20.0 * i, **_columns(row)} for i, row in enumerate(attention))
            signs = [said.notes.signal_present for said in _asked(forecaster, curve)]
            found.append({"kind": kind, "seed": seed, "method": "gain", "signs": sum(signs), "asked": len(signs)})
    return pd.DataFrame(found)


def _columns(attention: np.ndarray) -> dict[str, Any]:
    """Columns of attention in (layers, heads)."""
    return {k: v for layer, values in enumerate(attention) for k, v in head_columns("attention", layer, values).items()}


def gradient_norms(emerged: list[MeasuredRun], controls: pd.DataFrame) -> pd.DataFrame:
    """Norm of the gradient late in the plateau over that early in it (`said`): in standard runs of regression that
    emerged, and at the same steps in negative controls of that size that learn."""
    plain = [run for run in emerged if run.is_regression and run.is_standard and not run["p"]]
    alike = [run for run in plain if all(run[k] == size for k, size in NEGATIVE_CONTROL.items())]
    curves = [("emerge", run["plateau"], run.curve) for run in alike]
    if alike:
        end = float(np.mean([run["plateau"] for run in alike]))
        learning = controls[controls["kind"] != "learning rate 0"]
        never = (Curve.from_frame(rows, "run") for _, rows in learning.groupby(["kind", "seed"]))
        curves += [("cannot", end, curve) for curve in never]
    rows = []
    for which, end, curve in curves:
        norm = pd.Series(curve.values(GRAD_NORM), index=curve.steps / end)
        early, late = (norm[(norm.index >= a) & (norm.index <= b)].median() for a, b in ((0.2, 0.5), (0.6, 0.9)))
        rows.append({"method": which, "said": late / early})
    return pd.DataFrame(rows, columns=["method", "said"]).dropna()
