"""How the forecaster is fitted: calibrations of its signals and a power law, on some regression runs; others are held
out for evaluation."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from unstuck.laws import PowerLaw, fit_power_law

from .calibration import Calibration, by_theory, calibrate
from .prior import FORMULAS, estimate, extrapolation_error
from .runs import MeasuredRun
from .selection_runs import RECALL
from .signals import SIGNALS, chance

LAW = FORMULAS["single_location"]
CALIBRATED = ("gain", "entropy_drop", "head_divergence")  # signals that regression runs have
Rule = Callable[[MeasuredRun], bool]


@dataclass(frozen=True)
class Fitted:
    """What forecasts are made with."""

    calibrations: dict[str, Calibration]
    law: PowerLaw
    law_error: float  # of the law one doubling beyond its sizes, in the logarithm

    def prior(self, sizes: dict[str, Any]) -> tuple[float, float]:
        """The step that the law predicts, and the standard deviation of its logarithm."""
        return estimate(self.law, self.law_error, {k: sizes[k] for k in ("d", "T", "B")})[:2]


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


# -- held-out runs


def between(run: MeasuredRun) -> bool:
    """Held out: every second cell of the grid of (d, T, B), like the fields of one colour of a chessboard; runs with
    p > 0; seeds from 2 on."""
    return bool(_unseen_size(run) or run["p"] > 0 or run["seed"] >= 2)


def beyond(run: MeasuredRun) -> bool:
    """Held out: runs larger by a factor of two in d, T or B than those fitted on; runs with p > 0."""
    return bool(run["d"] >= 64 or run["T"] >= 128 or run["B"] >= 8 or run["p"] > 0)


def _unseen_size(run: MeasuredRun) -> bool:
    return round(math.log2(run["d"]) + math.log2(run["T"]) + math.log2(run["B"])) % 2 == 1


def _regression(run: MeasuredRun) -> bool:
    return run.is_regression and bool(run["optim"] == "adam")


def _deep(run: MeasuredRun) -> bool:
    return _regression(run) and bool(run["layers"] > 1)


def _standard(run: MeasuredRun) -> bool:
    return _deep(run) and run.is_standard


def _plain(run: MeasuredRun) -> bool:
    return _standard(run) and not run["p"]


def _other(run: MeasuredRun) -> bool:
    return _deep(run) and between(run) and not run.is_standard


def _same_rates(run: MeasuredRun) -> bool:
    """Does it differ from standard in layers, heads and their width alone? Such runs, of other sizes, are fitted on."""
    return run.has_standard("batch", "lr", "optim")


def _recall(run: MeasuredRun) -> bool:
    return bool(run["name"] == "recall")


SPLITS: dict[str, Rule] = {"between": between, "beyond": beyond}
#: For each split the sets of runs that are evaluated, and which runs belong to a set.
HELD_OUT: dict[str, dict[str, Rule]] = {
    "between": {
        "between": lambda run: _plain(run) and _unseen_size(run),
        "other seeds": lambda run: _plain(run) and between(run) and not _unseen_size(run),
        "cross-sample repetition": lambda run: _standard(run) and bool(run["p"]),
        "other layers and heads": lambda run: _other(run) and _same_rates(run),
        "other rates and batches": lambda run: _other(run) and not _same_rates(run),
        "one layer": lambda run: _regression(run) and bool(run["layers"] == 1),
        "recall": lambda run: _recall(run) and run["run_id"] in RECALL,
        "recall since": lambda run: _recall(run) and run["run_id"] not in RECALL,
    },
    "beyond": {"beyond": lambda run: _plain(run) and beyond(run)},
}


def held_out_sets(runs: list[MeasuredRun]) -> Iterator[tuple[str, list[MeasuredRun], Fitted]]:
    """Name of a set of held-out runs, the runs, and what they are forecast with."""
    for split, held_out in SPLITS.items():
        tuning = [run for run in runs if _deep(run) and not held_out(run)]
        if not tuning:
            continue
        fitted = fit(tuning)
        for name, belongs in HELD_OUT[split].items():
            yield name, [run for run in runs if belongs(run)], fitted
