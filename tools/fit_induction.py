"""Fit the law of induction heads to the committed runs on text, and write it for `unstuck predict induction`.

    python tools/fit_induction.py              reads results/text-law.csv and results/text-repetition.csv
    python tools/fit_induction.py RUNS.csv ... reads other tables of runs

A run counts as formed when its copying advantage reaches 2 nats (`crossing_2`); the others are censored at their last
step. Runs with repetition (burst above 0) and runs on natural text have a law each, where enough of them formed. Only
runs that agree in all other settings are used: for each setting, those with its most frequent value. `make results`
fits the law again when it has written tables.
"""

import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unstuck.errors import BadInput
from unstuck.files import write_text
from unstuck.laws.induction import FILE, kind
from unstuck.laws.power import PowerLaw, fit_power_law
from unstuck.laws.tables import at_threshold

RESULTS = Path(__file__).resolve().parent.parent / "results"
TABLES = (RESULTS / "text-law.csv", RESULTS / "text-repetition.csv")
THRESHOLD = 2.0  # nats
LEVEL = 0.9  # of the interval of a new run
SIZES = ("batch", "context", "burst")
SETTINGS = ("corpus", "vocabulary", "lag", "bigrams", "ngram", "layers", "heads", "width", "mlp", "layer_norm", "lr")


def gathered(tables: list[Path]) -> pd.DataFrame:
    """The runs of all tables, each once, that agree in every setting but their size; with `plateau_steps` at 2 nats."""
    runs = pd.concat([pd.read_csv(path) for path in tables], ignore_index=True).drop_duplicates("run_id")
    runs = at_threshold(runs[runs["status"].isin(["emerged", "censored"])], THRESHOLD)
    for setting in (name for name in SETTINGS if name in runs):
        usual = runs[setting].mode(dropna=False).iloc[0]
        alike = runs[setting].isna() if pd.isna(usual) else runs[setting] == usual
        if not alike.all():
            print(f"{(~alike).sum()} runs with another {setting} than {usual} are left out", file=sys.stderr)
        runs = runs[alike]
    return runs


def law_of(runs: pd.DataFrame) -> dict[str, Any] | None:
    """The power law of runs of one kind, as `FittedLaw` takes it; None where too few formed for one."""
    formed = runs[runs["status"] == "emerged"]
    terms = [name for name in SIZES if len(formed) and formed[name].min() < formed[name].max()]
    if not terms:
        return None
    try:
        law = fit_power_law(runs, " + ".join(terms))
    except BadInput as e:
        print(f"no law of {kind(runs['burst'].max())} text: {e}", file=sys.stderr)
        return None
    return as_fitted(law, formed, SIZES, LEVEL)


def as_fitted(law: PowerLaw, formed: pd.DataFrame, sizes: Sequence[str], level: float) -> dict[str, Any]:
    """A power law as `FittedLaw` takes it; `formed` has the runs whose event came."""
    return {
        "constant": law.constant,
        "exponents": law.exponents,
        "centre": law.centre.tolist(),
        "covariance": law.judged.covariance.tolist(),
        "variance": law.judged.new_run_variance,
        "quantile": law.judged.quantile(level),
        "level": level,
        "ranges": {name: [float(formed[name].min()), float(formed[name].max())] for name in sizes},
        "runs": law.n,
        "censored": law.censored,
    }


def cell_of(size: tuple[Any, ...], runs: pd.DataFrame) -> dict[str, Any]:
    steps = runs["plateau_steps"].where(runs["status"] == "emerged", np.inf)
    middle = float(steps.quantile(0.5, interpolation="higher"))
    return {
        "batch": int(size[0]),
        "context": int(size[1]),
        "burst": float(size[2]),
        "runs": len(runs),
        "formed": int(np.isfinite(steps).sum()),
        "steps": middle if np.isfinite(middle) else None,
        "last_step": float(runs["steps"].max()),
    }


def fitted(runs: pd.DataFrame) -> dict[str, Any]:
    """What `OurRuns.read` reads."""
    of_kind = runs.groupby(runs["burst"].map(kind))
    laws = {name: law for name, part in of_kind if (law := law_of(part)) is not None}
    shared = [f"{name} {runs[name].iloc[0]}" for name in ("layers", "heads", "vocabulary", "corpus") if name in runs]
    return {
        "event": f"copying advantage of {THRESHOLD:g} nats on repeated random sequences",
        "setting": ", ".join(shared),
        "date": date.today().isoformat(),
        "laws": laws,
        "cells": [cell_of(size, part) for size, part in runs.groupby(list(SIZES))],
    }


def refit(tables: Sequence[Path] = TABLES) -> bool:
    """Fit the tables that exist and write the law, unless there is none of them or nothing but the date would change.
    Returns whether it was written."""
    known = [path for path in tables if path.is_file()]
    if not known:
        return False
    found = json.loads(json.dumps(fitted(gathered(known))))
    for name, law in found["laws"].items():
        powers = " ".join(f"{term}^{x:.2f}" for term, x in law["exponents"].items())
        print(f"{name}: {law['constant']:.3g} {powers}, {law['runs']} runs formed, {law['censored']} did not")
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    if before | {"date": found["date"]} == found:
        return False
    write_text(FILE, json.dumps(found, indent=1) + "\n")
    return True


def main() -> int:
    tables = [Path(word) for word in sys.argv[1:]]
    if not tables and not any(path.is_file() for path in TABLES):
        print(f"neither {TABLES[0].name} nor {TABLES[1].name} is in results/: nothing is fitted", file=sys.stderr)
        return 1
    refit(tables or TABLES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
