"""How the survival model's scores change with each of its constants: results/forecast-sensitivity.csv.

    python tools/sensitivity.py

One constant is changed at a time. Models are fitted without runs of the size that is forecast, on the runs of
tools/calibrate.py; spreads are calibrated on these same left-out moments.
"""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pandas as pd
from calibrate import ROOT, training_runs

from unstuck.forecast import ExitRule, features, fitting, model
from unstuck.forecast.benchmark import group
from unstuck.forecast.forecaster import Forecaster
from unstuck.forecast.runs import MeasuredRun, moments_table
from unstuck.forecast.scoring import Row, scores
from unstuck.forecast.survival import Survival

OUT = ROOT / "results" / "forecast-sensitivity.csv"
HORIZON, CONFIDENCE = Forecaster().horizon, Forecaster().confidence


@dataclass(frozen=True)
class Constants:
    """The constants of the forecaster, at the values that are shipped."""

    horizon: float = HORIZON
    fall: float = ExitRule().fall
    faint_gain: float = features.FAINT_GAIN
    penalty: float = fitting.PENALTY


CHANGES = {
    "horizon": (1.5, 3, 6),
    "fall": (0.1, 0.2, 0.4),
    "faint_gain": (0.01, 0.03, 0.1),
    "penalty": (0.001, 0.01, 0.1),
}
COLUMNS = (
    ("error regression", "regression", "error", "from 30%"),
    ("coverage regression", "regression", "coverage", "all"),
    ("answered regression", "regression", "answered", "from 15%"),
    ("error recall", "recall", "error", "from 30%"),
    ("coverage recall", "recall", "coverage", "all"),
    ("answered recall", "recall", "answered", "from 15%"),
    ("alarms negative control", "negative control", "alarm", "all"),
    ("alarms drift", "drift", "alarm", "all"),
)


class Sensitivity:
    """Moments and fits, each computed once for what it depends on."""

    def __init__(self, runs: list[MeasuredRun]) -> None:
        self.runs = runs
        self.known: dict[tuple[float, float, float], pd.DataFrame] = {}
        self.tables: dict[tuple[float, float], pd.DataFrame] = {}

    def answers(self, constants: Constants) -> pd.DataFrame:
        """As `Benchmark.answers`, of the model with these constants."""
        table = self._left_out(constants)
        rows = []
        for row in table.itertuples(index=False):
            survival = Survival(row.step, np.log(row.step) + row.mean, row.spread, row.probability)
            stated = survival.by(constants.horizon * row.step) >= CONFIDENCE
            answer = (survival.median, *survival.interval(0.8)) if stated else (np.nan,) * 3
            rows.append((*answer, survival.soon))
        said = pd.DataFrame(rows, columns=["median", "low", "high", "soon"], index=table.index)
        return pd.concat([table[["group", "setting", "run_id", "step", "event", "last"]], said], axis=1)

    def _left_out(self, constants: Constants) -> pd.DataFrame:
        key = constants.fall, constants.faint_gain, constants.penalty
        if key not in self.known:
            with ExitStack() as changed:
                for module in (features, model):
                    changed.enter_context(patch.object(module, "FAINT_GAIN", constants.faint_gain))
                changed.enter_context(patch.object(fitting, "PENALTY", constants.penalty))
                if key[:2] not in self.tables:
                    self.tables[key[:2]] = moments_table(self.runs, "attention", ExitRule(fall=constants.fall))
                table = self.tables[key[:2]]
                found = fitting.left_out(table)
                factors = np.interp(np.exp(-np.maximum(found["mean"], 0.0)), *fitting.calibrate(table, found))
            names = {run.run_id: group(run) for run in self.runs}
            table = table.assign(group=table["run_id"].map(names), setting=table["run_id"])
            self.known[key] = table.join(found.assign(spread=found["spread"] * factors))
        return self.known[key]


def main() -> int:
    study, parts = Sensitivity(training_runs()), []
    for name, values in CHANGES.items():
        for value in values:
            parts.append(study.answers(Constants(**{name: value})).assign(entrant=f"{name} {value:g}"))
            print(name, value, file=sys.stderr)
    found = scores(pd.concat(parts, ignore_index=True))
    rows = []
    for name, values in CHANGES.items():
        for value in values:
            mine = Row(f"{name} {value:g}", found)
            row = {"constant": name, "value": value, "shipped": value == getattr(Constants(), name)}
            rows.append(row | {head: round(mine.value(*place), 4) for head, *place in COLUMNS})
    pd.DataFrame(rows).to_csv(OUT, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
