"""How the forecaster is fitted: calibrations of its signals and a power law, on some regression runs; others are held
out for evaluation."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from unstuck.laws import PowerLaw, fit_power_law

from .calibration import Calibration, by_theory, calibrate
from .prior import FORMULAS, estimate, extrapolation_error
from .runs import STANDARD, MeasuredRun
from .selection_runs import RECALL
from .signals import SIGNALS, chance

LAW = FORMULAS["single_location"]
CALIBRATED = ("gain", "entropy_drop", "head_divergence")  # signals that regression runs have
SIZES = ("d", "T", "B", "p")


@dataclass(frozen=True)
class Fitted:
    """What forecasts are made with."""

    calibrations: dict[str, Calibration]
    law: PowerLaw
    law_error: float  # of the law one doubling beyond its sizes, in the logarithm

    def prior(self, sizes: dict[str, Any]) -> tuple[float, float]:
        """The step that the law predicts, and the standard deviation of its logarithm."""
        return estimate(self.law, self.law_error, {k: sizes[k] for k in SIZES[:3]})[:2]


def fit(runs: list[MeasuredRun]) -> Fitted:
    """Calibrations from all these runs, and the law of those with standard settings."""
    standard = pd.DataFrame([run.settings for run in runs if run.is_standard])
    standard = standard.assign(plateau_steps=standard["plateau"], status="emerged")
    return Fitted(calibrations(runs), fit_power_law(standard, LAW, offset="fit"), extrapolation_error(standard, LAW))


def calibrations(runs: list[MeasuredRun]) -> dict[str, Calibration]:
    """Of the signals that regression has. `induction` uses that of `gain`; `two_step_gain`, which regression has not,
    uses the progress law itself, with the spread of `gain` around it."""
    found = {}
    middle = float(np.median([run["plateau"] for run in runs]))
    for name in CALIBRATED:
        values, ahead, long, starts = zip(*_observations(runs, name, middle), strict=True)
        found[name] = calibrate(name, values, ahead, long, len(runs), starts if name == "gain" else None)
        if name == "gain":
            found["two_step_gain"] = by_theory("two_step_gain", values, ahead, len(runs))
    return found


def _observations(runs: list[MeasuredRun], signal: str, middle: float) -> Iterator[tuple[float, float, bool, float]]:
    """Value of a signal, log(plateau / step), whether the plateau is a long one, and the attention at the start, at
    every moment of every run. Short plateaus test the curve that is fitted to long ones, and vice versa."""
    for run in runs:
        values, start = SIGNALS[signal][1](run.curve), chance(run.curve)  # a value does not depend on later rows
        for _, part in run.moments():
            ahead = math.log(run["plateau"] / part.steps[-1])
            yield values[len(part) - 1], ahead, run["plateau"] > middle, start


def held_out_sets(runs: list[MeasuredRun]) -> Iterator[tuple[str, list[MeasuredRun], Fitted]]:
    """Name of a set of held-out runs, the runs, and what they are forecast with: regression runs of two layers or more.

    `between` holds out every second cell of the grid of (d, T, B), like the fields of one colour of a chessboard, runs
    with p > 0, and seeds from 2 on; `beyond` holds out runs that are larger by a factor of two in d, T or B, and runs
    with p > 0. `other layers and heads` differ from the standard in these alone; runs like them are fitted on.
    """
    run = pd.DataFrame([run.settings for run in runs]).reindex(columns=[*STANDARD, *SIZES, "name", "seed", "run_id"])
    regression = (run["name"] == "single_location") & (run["optim"] == "adam")
    deep, one_layer = regression & (run["layers"] > 1), regression & (run["layers"] == 1)
    same_rates = (run[["batch", "lr", "optim"]] == [STANDARD[k] for k in ("batch", "lr", "optim")]).all(axis=1)
    standard = deep & (run[[*STANDARD]] == [*STANDARD.values()]).all(axis=1)
    plain, repeated = standard & (run["p"] == 0), run["p"] > 0
    unseen_size = np.log2(run["d"] * run["T"] * run["B"]).round() % 2 == 1
    between = unseen_size | repeated | (run["seed"] >= 2)
    beyond = (run["d"] >= 64) | (run["T"] >= 128) | (run["B"] >= 8) | repeated
    recall, seen = run["name"] == "recall", run["run_id"].isin(RECALL)
    sets = {
        "between": plain & unseen_size,
        "other seeds": plain & between & ~unseen_size,
        "cross-sample repetition": standard & repeated,
        "other layers and heads": deep & between & ~standard & same_rates,
        "other rates and batches": deep & between & ~standard & ~same_rates,
        "one layer": one_layer,
        "recall": recall & seen,
        "recall since": recall & ~seen,
    }
    for held_out, chosen in ((between, sets), (beyond, {"beyond": plain & beyond})):
        tuning = list(itertools.compress(runs, deep & ~held_out))
        if tuning:
            fitted = fit(tuning)
            yield from ((name, list(itertools.compress(runs, mask)), fitted) for name, mask in chosen.items())
