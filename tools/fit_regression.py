"""Fit the law of our Transformers on regression to the committed runs, and write it for `unstuck predict`.

    python tools/fit_regression.py     reads results/fig3-left.csv, writes src/unstuck/laws/regression_law.json

`make results` fits the law again when it has written tables.
"""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
from fit_induction import LEVEL, as_fitted

from unstuck.files import write_text
from unstuck.laws.power import fit_power_law
from unstuck.laws.regression import FILE, THRESHOLD
from unstuck.laws.tables import at_threshold

TABLE = Path(__file__).resolve().parent.parent / "results" / "fig3-left.csv"


def fitted(table: pd.DataFrame) -> dict[str, Any]:
    """What `TransformerLaw.read` reads."""
    runs = at_threshold(table, THRESHOLD).assign(length=lambda t: t["T"] / t["B"])
    one = runs.iloc[0]
    model = f"{one['layers']} layers, {one['heads']} heads"
    setting = f"{model}, {one['optim'].title()} at {one['lr']:g}, batch {one['batch']}"
    law = as_fitted(fit_power_law(runs, "d + length"), runs[runs["status"] == "emerged"], ("d", "length"), LEVEL)
    return {"setting": setting, "date": date.today().isoformat(), "law": law}


def refit() -> bool:
    """Fit the table, if it is there, and write the law unless nothing but the date would change."""
    if not TABLE.is_file():
        return False
    found = json.loads(json.dumps(fitted(pd.read_csv(TABLE))))
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    if before | {"date": found["date"]} == found:
        return False
    write_text(FILE, json.dumps(found, indent=1) + "\n")
    return True


if __name__ == "__main__":
    refit()
    sys.exit(0)
