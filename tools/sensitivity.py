"""How the survival model's scores change with each of its constants: results/forecast-sensitivity*.csv.

    python tools/sensitivity.py             forecast-sensitivity.csv: the model for runs of known tasks
    python tools/sensitivity.py --others    forecast-sensitivity-others.csv: that for other tasks

One constant is changed at a time. Models are fitted without runs of the size, or task, that is forecast, on the runs of
tools/calibrate.py; spreads are calibrated on these same left-out moments.
"""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pandas as pd
from calibrate import ROOT, training_runs

from unstuck.forecast import ExitRule, features, fitting, model
from unstuck.forecast.benchmark import OTHERS_MODELS, group
from unstuck.forecast.fitting import FEATURES, KNOWN, OTHERS, Form
from unstuck.forecast.forecaster import Forecaster
from unstuck.forecast.runs import NEVER, STRANGER, MeasuredRun, moments_table
from unstuck.forecast.scoring import OTHER_NEVER, OTHER_TASK, Row, scores
from unstuck.forecast.survival import Survival

OUT = ROOT / "results" / "forecast-sensitivity.csv"
OUT_OTHERS = ROOT / "results" / "forecast-sensitivity-others.csv"


@dataclass(frozen=True)
class Constants:
    """The constants of the forecaster, at the values that are shipped."""

    horizon: float = Forecaster().horizon
    confidence: float = Forecaster().confidence
    fall: float = ExitRule().fall
    noises: float = ExitRule().noises
    faint: float = features.FAINT
    faint_gain: float = features.FAINT_GAIN
    penalty: float = fitting.PENALTY
    widest: float = model.WIDEST

    @property
    def of_moments(self) -> tuple[float, ...]:
        """Those that change events and features."""
        return self.fall, self.noises, self.faint, self.faint_gain

    @property
    def of_fit(self) -> tuple[float, ...]:
        """Those that change the fitted model."""
        return *self.of_moments, self.penalty, self.widest


CHANGES = {
    "horizon": (1.5, 3, 6),
    "confidence": (0.25, 0.5, 0.75),
    "fall": (0.1, 0.2, 0.4),
    "noises": (2.5, 5, 10),
    "faint": (0.03, 0.1, 0.3),
    "faint_gain": (0.01, 0.03, 0.1),
    "penalty": (0.001, 0.01, 0.1),
    "widest": (3, 4, 6),
}
FORMS = {
    "no correction, one spread": replace(OTHERS, terms=(0, 1, FEATURES)),
    "no correction, spread by gain": replace(OTHERS, terms=(0, 2, FEATURES)),
    "shipped": OTHERS,
    "a factor": replace(OTHERS, terms=(1, 3, FEATURES)),
    "linear correction": replace(OTHERS, terms=(FEATURES, 3, FEATURES)),
    "quadratic correction": replace(OTHERS, terms=KNOWN.terms),
    "one vote a task": replace(OTHERS, most_votes=1),
    "up to ten votes a task": replace(OTHERS, most_votes=10),
    "up to forty votes a task": replace(OTHERS, most_votes=40),
    "one vote a run": replace(OTHERS, most_votes=np.inf),
}
OTHERS_COLUMNS = (
    ("error from 15%", OTHER_TASK, "error", "from 15%"),
    ("error from 30%", OTHER_TASK, "error", "from 30%"),
    ("coverage", OTHER_TASK, "coverage", "all"),
    ("answered", OTHER_TASK, "answered", "from 15%"),
    ("error encoders", OTHERS_MODELS, "error", "from 30%"),
    ("coverage encoders", OTHERS_MODELS, "coverage", "all"),
    ("answered encoders", OTHERS_MODELS, "answered", "from 15%"),
    ("alarms", OTHER_NEVER, "alarm", "all"),
)
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
        self.known: dict[tuple[float, ...], pd.DataFrame] = {}
        self.tables: dict[tuple[float, ...], pd.DataFrame] = {}

    def answers(self, constants: Constants) -> pd.DataFrame:
        """As `Benchmark.answers`, of the model with these constants."""
        return self._said(constants, self._left_out(constants))

    def answers_of(self, form: Form) -> pd.DataFrame:
        """As `Benchmark.answers` for tasks left out, of a model of this form; encoders that are not ours are a group of
        their own, too."""
        table = moments_table(self.runs, "attention") if () not in self.tables else self.tables[()]
        self.tables[()] = table
        found = fitting.left_out(table, "attention", form)
        factors = np.interp(np.exp(-np.maximum(found["mean"], 0.0)), *fitting.calibrate(table, found, form))
        never = table["family"].isin(NEVER)
        table = table.assign(group=np.where(never, OTHER_NEVER, OTHER_TASK), setting=table["run_id"])
        said = self._said(Constants(), table.join(found.assign(spread=found["spread"] * factors)))
        encoders = said[~never & table["family"].str.startswith(STRANGER)].assign(group=OTHERS_MODELS)
        return pd.concat([said, encoders], ignore_index=True)

    def _said(self, constants: Constants, table: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for row in table.itertuples(index=False):
            mean = np.log(row.step - row.since) + row.mean
            survival = Survival(row.step, mean, row.spread, row.probability, row.since)
            stated = survival.within(constants.horizon) >= constants.confidence
            answer = (survival.median, *survival.interval(0.8)) if stated else (np.nan,) * 3
            rows.append((*answer, survival.soon))
        said = pd.DataFrame(rows, columns=["median", "low", "high", "soon"], index=table.index).assign(unlike=np.nan)
        return pd.concat([table[["group", "setting", "run_id", "since", "step", "event", "last"]], said], axis=1)

    def _left_out(self, constants: Constants) -> pd.DataFrame:
        key, of_moments = constants.of_fit, constants.of_moments
        if key not in self.known:
            with ExitStack() as changed:
                for module, name, value in (
                    (features, "FAINT", constants.faint),
                    (features, "FAINT_GAIN", constants.faint_gain),
                    (model, "FAINT_GAIN", constants.faint_gain),
                    (model, "WIDEST", constants.widest),
                    (fitting, "WIDEST", constants.widest),
                    (fitting, "PENALTY", constants.penalty),
                ):
                    changed.enter_context(patch.object(module, name, value))
                if of_moments not in self.tables:
                    rule = ExitRule(fall=constants.fall, noises=constants.noises)
                    self.tables[of_moments] = moments_table(self.runs, "attention", rule)
                table = self.tables[of_moments]
                found = fitting.left_out(table)
                factors = np.interp(np.exp(-np.maximum(found["mean"], 0.0)), *fitting.calibrate(table, found))
            names = {run.run_id: group(run) for run in self.runs}
            table = table.assign(group=table["run_id"].map(names), setting=table["run_id"])
            self.known[key] = table.join(found.assign(spread=found["spread"] * factors))
        return self.known[key]


def others(study: Sensitivity) -> None:
    """The table of forms."""
    found = scores(pd.concat([study.answers_of(form).assign(entrant=name) for name, form in FORMS.items()]))
    rows = []
    for name in FORMS:
        mine = Row(name, found)
        rows.append({"model": name} | {head: round(mine.value(*place), 4) for head, *place in OTHERS_COLUMNS})
    pd.DataFrame(rows).to_csv(OUT_OTHERS, index=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", action="store_true", help="the model for tasks that are not in the fit")
    asked = parser.parse_args()
    study, parts = Sensitivity(training_runs()), []
    if asked.others:
        others(study)
        return 0
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
