"""Write the survival models that the package ships, from the runs under results/ that cannot be told from fresh ones.

    python tools/calibrate.py

Runs with SGD, of Markov chains and at a floor are left out (`is_fitted_on` says why). How good the models are on sizes
left out is `unstuck bench forecast`, on fresh runs `tools/registered.py`.
"""

import json
import sys
from pathlib import Path

import pandas as pd

from unstuck.columns import renamed
from unstuck.forecast.benchmark import DRIFT_FITTED
from unstuck.forecast.entrants import error_correlation
from unstuck.forecast.features import KINDS
from unstuck.forecast.fitting import fit_both
from unstuck.forecast.runs import MeasuredRun, controls, drifting, finished_runs, is_fitted_on, moments_table, strangers
from unstuck.store.store import Store

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "src" / "unstuck" / "forecast" / "model.json"
LEAST_RUNS = 30  # that emerged, for a kind of evidence to be fitted


def training_runs() -> list[MeasuredRun]:
    """What the models are fitted on."""
    runs = finished_runs(Store(ROOT / "results" / "store"))
    never = controls(renamed(pd.read_csv(ROOT / "results" / "negative_controls.csv"), "run"))
    encoders = strangers(pd.read_csv(ROOT / "results" / "strangers.csv.gz"))
    return list(filter(is_fitted_on, [*runs, *never, *encoders, *drifting(*DRIFT_FITTED)]))


def main() -> int:
    runs, models = training_runs(), []
    for name in KINDS:
        table = moments_table(runs, name)
        if table.empty or table.loc[table["event"].notna(), "run_id"].nunique() < LEAST_RUNS:
            print(f"{name}: too few runs")
            continue
        models.append(fit_both(table, name).with_correlation(error_correlation(runs, name)))
        known = models[-1].known
        print(f"{name}: {known.runs} runs, {len(table)} moments, digest {models[-1].digest}, ", end="")
        print(f"correlation with the law of sizes {known.correlation:.2f}")
    text = {"written by": "tools/calibrate.py", "models": [found.as_dicts() for found in models]}
    MODELS.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
