"""What a report shows of a run store: a table, thinned curves, a law with its residuals, attention over training."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.columns import (
    COPY_ADVANTAGE,
    EXCESS_LOSS,
    IN_CONTEXT_SCORE,
    SPECIALISATION,
    STEP,
    TEST_ACCURACY,
    TEST_LOSS,
    TRAIN_LOSS,
)
from unstuck.config.run import TrainSpec
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.forecast.prior import WITHOUT_EFFECT
from unstuck.laws import PowerLaw, fit_power_law
from unstuck.laws.tables import unscheduled
from unstuck.store.store import RunDirectory, Store
from unstuck.view.attention_maps import attention_of
from unstuck.view.columns import RESULTS, telling_columns
from unstuck.view.expected import zone_of
from unstuck.view.marks import Mark, marks_of
from unstuck.view.plain import plain, thinned

POINTS = 60_000  # of all curves together
LEAST = 8  # points of a curve, however many runs there are
MOST = 200
ATTENTION = 3_000_000  # bytes of attention maps
MEASURES = {
    TEST_LOSS: "test loss",
    TEST_ACCURACY: "test accuracy",
    TRAIN_LOSS: "training loss",
    EXCESS_LOSS: "loss above that of the truth",
    SPECIALISATION: "specialisation index",
    COPY_ADVANTAGE: "copying advantage on repeated random sequences (nats)",
    IN_CONTEXT_SCORE: "in-context score: loss early minus late in the context (nats)",
    "best_attention": "best head's attention to the relevant tokens",
    "best_induction": "best head's induction score",
    "best_previous_token": "best head's previous-token score",
}
BEST = {f"best_{measure}": measure for measure in ("attention", "induction", "previous_token")}
SIZES = ("d", "T", "tokens", "pairs", "B")
MANY, ENOUGH = 12, 6  # sets of runs tried for laws, and emerged runs a law needs


@dataclass(frozen=True)
class Runs:
    """Everything as plain values, ready for JSON."""

    columns: list[str]
    rows: list[list[Any]]
    curves: dict[str, dict[str, list[float | None]]]
    thinned: str  # what was left out, in a sentence; empty if nothing
    attention: list[dict[str, Any]]
    unseen: str  # whose maps are left out, in a sentence
    laws: list[dict[str, Any]]
    marks: dict[str, list[Mark]]  # levels that the curves are read against, with their names
    settings: list[str]  # the columns that change the dynamics of a run
    circuits: dict[str, list[str]]  # in sentences, of the runs whose circuit was looked for
    expected: dict[str, dict[str, Any]]  # when runs that are not over are expected to leave their plateaus


def runs_of(store: Path, formula: str | None = None) -> Runs | None:
    """The runs of a store, or None where it has none. With a formula that cannot be fitted, bad input; without one, a
    law of the sizes that vary for each set of runs that has enough of them."""
    where = Store(store)
    table = where.table() if store.is_dir() else pd.DataFrame()
    return None if table.empty else _shown(where, table, formula)


def run_of(directory: Path, formula: str | None = None) -> Runs | None:
    """One run, from its directory; None where that is damaged."""
    row = RunDirectory(directory).row()
    return None if row is None else _shown(Store(directory.parent), pd.DataFrame([row]), formula)


def _shown(where: Store, table: pd.DataFrame, formula: str | None) -> Runs:
    """The runs of a table."""
    names, rows = table_of(table)
    points = max(LEAST, min(MOST, POINTS // len(table)))
    curves, circuits, marks, left_out = {}, {}, {}, 0
    for row in table.to_dict("records"):
        run_id = str(row["run_id"])
        run = where.run(run_id)
        if says := circuit_of(run):
            circuits[run_id] = says
        curve = run.curve()
        if curve is None or not len(curve):
            continue
        left_out += max(0, len(curve) - points)
        curves[run_id] = curve_of(curve, points)
        marks[run_id] = marks_of(row, curve)
    note = f"Curves are thinned to {points} points each; {left_out:,} rows are not shown." if left_out else ""
    attention, large = attention_of([where.run(str(run_id)) for run_id in table["run_id"]], ATTENTION)
    unseen = (
        f"The maps of {large} runs are left out, to keep this file small; `unstuck serve` shows them." if large else ""
    )
    zones = {run_id: zone for run_id in map(str, table["run_id"]) if (zone := zone_of(where.run(run_id))) is not None}
    laws = _laws(table, formula)
    return Runs(names, rows, curves, note, attention, unseen, laws, marks, settings_of(names), circuits, zones)


def table_of(table: pd.DataFrame) -> tuple[list[str], list[list[Any]]]:
    """Names of the columns that are worth showing, and the rows as plain values."""
    names = telling_columns(table)
    return names, rows_of(table, names)


def rows_of(table: pd.DataFrame, names: list[str]) -> list[list[Any]]:
    """Some columns of a table as plain values."""
    shown = table[names].astype(object).where(table[names].notna(), None)
    return [[plain(v) for v in row] for row in shown.itertuples(index=False)]


def settings_of(columns: list[str]) -> list[str]:
    """The columns that change the dynamics of a run, and the seed."""
    free = {"run_id", "threshold", *RESULTS, *(WITHOUT_EFFECT - {"seed"})}
    return [c for c in columns if c not in free]


def circuit_of(directory: RunDirectory) -> list[str]:
    """The sentences about a run's circuit."""
    result = directory.result()
    said = (result.circuit or {}).get("says") if result is not None else None
    return [str(sentence) for sentence in said] if isinstance(said, list) else []


def curve_of(curve: Curve, points: int) -> dict[str, list[float | None]]:
    """The measures of a run in so many rows at even distances, including the first and the last."""
    table = curve.to_frame()
    for name, measure in BEST.items():
        if measure in curve.measures:
            table[name] = curve.best(measure)
    foreign = [curve.loss_name] if curve.loss_name and curve.loss_name not in MEASURES else []
    table = table[[STEP, *(m for m in [*MEASURES, *foreign] if m in table)]]
    table = table.iloc[thinned(len(table), points)]
    return {str(c): [plain(float(v)) for v in table[c]] for c in table}


def _laws(table: pd.DataFrame, formula: str | None) -> list[dict[str, Any]]:
    """With a formula, one law of all runs; else a law for each of the largest sets of runs that differ only in size and
    seed."""
    if formula is not None:
        return [_law_of_all(table, formula)]
    settings = _settings(table)
    keys = pd.Series([" ".join(map(str, row)) for row in table[settings].itertuples(index=False)], index=table.index)
    varied = [c for c in settings if c not in ("task", "model") and len(set(map(str, table[c]))) > 1]
    sets = [table[keys == key] for key in keys.value_counts().index[:MANY]]
    usual = {c: str(Counter(str(part[c].iloc[0]) for part in sets).most_common(1)[0][0]) for c in varied}
    found = [_law_of_set(part, _name_of_set(part, usual)) for part in sets]
    return [law for law in found if law is not None]


def _law_of_all(table: pd.DataFrame, formula: str) -> dict[str, Any]:
    rest = unscheduled(table)
    name = "all runs" if len(rest) == len(table) else "all runs except those under a diversity schedule"
    try:
        return law_of(rest, formula, name)
    except ValueError as e:
        raise BadInput("formula", formula, f"one that can be fitted to these runs ({e})") from e


def _settings(table: pd.DataFrame) -> list[str]:
    """The columns that runs of one law agree in: not sizes, seeds, budgets and results."""
    budget = {f.name for f in dataclasses.fields(TrainSpec)} - {"batch", "threads", "device"}
    free = {"run_id", "seed", "threshold", *SIZES, *RESULTS, *budget}
    return [c for c in table if c not in free and not str(c).startswith("crossing_")]


def _law_of_set(part: pd.DataFrame, name: str) -> dict[str, Any] | None:
    """The law of runs that differ only in size and seed, if there are enough of them."""
    formula = formula_of(part)
    if formula is None or (part["status"] == "emerged").sum() < ENOUGH:
        return None
    try:
        return law_of(part, formula, name)
    except ValueError:
        return None


def _name_of_set(part: pd.DataFrame, usual: dict[str, str]) -> str:
    """Task, model and number of runs, and the settings that are not the usual ones."""
    name = f"{part['task'].iloc[0]}, {part['model'].iloc[0]}, {len(part)} runs" if "task" in part else "runs"
    found = {c: part[c].iloc[0] for c in usual}  # a missing one is None or NaN; a list is a value
    there = {c: value for c, value in found.items() if value is not None and value == value}
    settings = [f"{c} = {value}" for c, value in there.items() if str(value) != usual[c]]
    return name + (f" ({', '.join(settings)})" if settings else "")


def law_of(table: pd.DataFrame, formula: str, name: str, law: PowerLaw | None = None) -> dict[str, Any]:
    """A law, its terms and its prediction for each emerged run."""
    law = law or fit_power_law(table, formula)
    emerged = table[(table["status"] == "emerged") & table["plateau_steps"].notna()]
    return {
        "name": name,
        "formula": formula,
        "text": str(law),
        "terms": _terms(law),
        "r2": plain(law.r2),
        "n": law.n,
        "censored": law.censored,
        "run_id": [str(x) for x in emerged["run_id"]],
        "measured": [plain(float(x)) for x in emerged["plateau_steps"]],
        "said": [plain(float(x)) for x in law.predict(emerged)],
    }


def _terms(law: PowerLaw) -> list[list[Any]]:
    return [[term, x, *law.intervals[term]] for term, x in law.exponents.items()]


def formula_of(table: pd.DataFrame) -> str | None:
    """A formula of the sizes that vary; T/B if both do."""
    sizes = [c for c in SIZES if c in table and table[c].notna().all()]
    varied = [c for c in sizes if len(table.drop_duplicates(c)) > 1]
    if "T" in varied and "B" in varied:
        varied = [c for c in varied if c not in ("T", "B")] + ["T/B"]
    return " + ".join(varied) or None
