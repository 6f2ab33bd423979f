"""Read a table of runs from a run store, CSV or Parquet."""

import json
import math
import operator
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unstuck.columns import STEP
from unstuck.config.names import shown_name
from unstuck.errors import BadInput, nearest, some
from unstuck.store.parquet import read_parquet
from unstuck.store.store import Store


def read_table(source: str | Path) -> pd.DataFrame:
    """The table in `source`, by its ending; a missing or unreadable file is bad input."""
    path = Path(source)
    readers: dict[str, Any] = {".csv": pd.read_csv, ".parquet": lambda path: read_parquet(path).to_pandas()}
    if path.is_dir():
        return _store(path)
    if path.suffix.lower() not in readers:
        makes = "`unstuck sweep regression task.T=8,16 task.d=4,8 --out DIR` makes a store"
        raise BadInput("source", str(source), f"a run store, or a .csv or .parquet file; {makes}")
    if not path.is_file():
        raise BadInput("source", str(source), "a file that exists")
    try:
        table = readers[path.suffix.lower()](path)
    except Exception as e:  # every reader has its own errors for a damaged file
        raise BadInput(
            "source", str(source), f"a readable table ({type(e).__name__}: {' '.join(str(e).split())})"
        ) from e
    if table.empty:
        raise BadInput("source", str(source), "a table with at least one row")
    if "task" in table:  # of earlier versions, or written by hand
        table = table.assign(task=table["task"].map(shown_name))
    return one_row_a_run(plain_status(table))


def plain_status(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its `status`, if it has one, as runs write it: in lower case, without blanks."""
    if "status" not in table:
        return table
    return table.assign(status=table["status"].astype("string").str.strip().str.lower().astype(object))


def one_row_a_run(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of each run of a table of curves, as some figures write them, with the number of its steps."""
    if "run_id" not in table or STEP not in table or not table["run_id"].duplicated().any():
        return table
    there = table[STEP].notna() & table["run_id"].notna()
    rows = table[there].sort_values(STEP, kind="stable").drop_duplicates("run_id", keep="last").sort_index()
    warnings.warn(f"the table holds curves: each of its {len(rows)} runs counts once", UserWarning, stacklevel=3)
    return rows if "steps" in rows else rows.assign(steps=rows[STEP])


def _store(path: Path) -> pd.DataFrame:
    table = Store(path).table()
    if table.empty:
        raise BadInput("source", str(path), "a store with finished runs; `unstuck sweep ... --out DIR` makes one")
    return table


_COMPARE: dict[str, Any] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


_SIGN = re.compile("<=|>=|!=|=|<|>")
LONGEST = 500  # characters of a condition


def where(table: pd.DataFrame, conditions: Iterable[str]) -> pd.DataFrame:
    """The rows that meet all conditions, such as "T=64" or "d<=32"; `task.T` also finds a column `T`."""
    for condition in conditions:
        name, sign, text = _condition(condition)
        column = name if name in table else name.rpartition(".")[2]
        if column not in table:
            raise BadInput("where", name, f"a column of the table: {some(table)}" + nearest(name, table))
        values = table[column]
        if sign not in ("=", "!="):
            values = _ordered(values, condition)
        numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
        try:
            wanted: Any = float(text) if numeric else shown_name(text.lower()) if column == "task" else text.lower()
        except ValueError as e:
            raise BadInput("where", condition, f"a comparison of {column} with a number") from e
        table = table[_COMPARE[sign](values if numeric else values.astype(str).str.lower(), wanted)]
    return table


def _condition(text: str) -> tuple[str, str, str]:
    """Column, sign and value of a condition, cut at its first sign."""
    if len(text) > LONGEST:
        raise BadInput("where", text, f"of at most {LONGEST} characters")
    sign = _SIGN.search(text)
    name, value = (text[: sign.start()].strip(), text[sign.end() :].strip()) if sign else ("", "")
    if sign is None or not re.fullmatch(r"[\w.]+", name) or not value:
        raise BadInput("where", text, "of the form COLUMN=VALUE, or with != < <= > >=, such as d<=32")
    return name, sign[0], value


def _ordered(values: pd.Series, condition: str) -> pd.Series:
    """A column as numbers; pandas reads a column with one cell of text as text."""
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    text = values[numbers.isna() & values.notna()]
    if len(text):
        raise BadInput("where", condition, f"a comparison of numbers; {values.name} holds {text.iloc[0]!r}")
    return numbers


def unscheduled(table: pd.DataFrame) -> pd.DataFrame:
    """The runs without a diversity schedule, whose plateaus follow another law; all runs if all have one."""
    if "schedule" not in table or table["schedule"].isna().all() or table["schedule"].notna().all():
        return table
    return table[table["schedule"].isna()]


def _thresholds(cell: Any) -> list[float]:
    """The thresholds that a run recorded; a CSV has them as text, and a watched run has none."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError:
            return []
    return [float(x) for x in cell] if isinstance(cell, (list, tuple, np.ndarray)) else []


def at_threshold(table: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """The table with the crossing of another threshold as its plateau; runs that did not cross it are censored. A run
    that did not record the threshold is left out. Where the table does not say which thresholds a run recorded, so is
    a run that emerged without that crossing, since it was stopped at another threshold."""
    column = f"crossing_{threshold:g}"
    watched = pd.Series(
        [any(f"{x:g}" == f"{threshold:g}" for x in _thresholds(t)) for t in table["thresholds"]]
        if "thresholds" in table
        else False,
        index=table.index,
        dtype=bool,
    )
    if column not in table and watched.any():  # none of the runs has got there
        table = table.assign(**{column: math.nan})
    if column not in table:
        known = [c for c in table if c.startswith("crossing_") and table[c].notna().any()]
        shown = ", ".join(c.removeprefix("crossing_") for c in known) or "none"
        raise BadInput("threshold", threshold, f"one that the runs recorded: {shown}")
    if "status" in table:
        given = table["status"]
    else:  # then what has a plateau has emerged
        given = pd.Series("censored", index=table.index)
        given = given.mask(table["plateau_steps"].notna(), "emerged") if "plateau_steps" in table else given
    silent = ~watched if "thresholds" in table else given == "emerged"
    unseen = silent & table[column].isna()
    if unseen.any():
        message = f"{unseen.sum()} runs did not record threshold {threshold:g} and are left out"
        warnings.warn(message, UserWarning, stacklevel=2)
    status = given.where(~given.isin(["emerged", "censored"]), "censored").mask(table[column].notna(), "emerged")
    return table.assign(plateau_steps=table[column], status=status)[~unseen]
