"""The columns of a table of runs that are worth showing: results, and settings that differ between runs."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from unstuck.store.cells import Cells, Column

if TYPE_CHECKING:
    import pandas as pd

RESULTS = ("status", "plateau_steps", "steps", "seconds")


def telling_columns(table: "pd.DataFrame | Cells") -> list[str]:
    """The run's id, its results, and the settings that differ between runs of one task; settings that only some tasks
    have always differ between tasks."""
    return _of_cells(table) if isinstance(table, Cells) else _of_frame(table)


def _of_frame(table: "pd.DataFrame") -> list[str]:
    tasks = table["task"].map(str) if "task" in table else np.zeros(len(table))
    several = [part for _, part in table.groupby(tasks, sort=False)]
    return _telling(list(map(str, table)), len(several), lambda name: [_distinct(part[name]) for part in several])


def _of_cells(table: Cells) -> list[str]:
    task = table.columns["task"].codes if "task" in table.columns else np.zeros(len(table), np.int32)
    several = [task == code for code in np.unique(task)]
    return _telling(list(table.names()), len(several), lambda n: [_used(table.columns[n], part) for part in several])


def _telling(names: Iterable[str], tasks: int, values: Callable[[str], list[list[Any]]]) -> list[str]:
    """`values` has the distinct values of a column, for each task."""
    names, known = list(names), {"run_id", "task", *RESULTS}
    asked = (name for name in names if name not in known and not name.startswith("crossing_"))
    found = {name: parts for name in asked if _tells_apart(parts := values(name))}
    settings = sorted(found, key=lambda name: _owners(found[name]) > tasks / 2)  # what few tasks have comes first
    return ["run_id", *(["task"] if tasks > 1 else []), *(c for c in RESULTS if c in names), *settings]


def _tells_apart(parts: list[list[Any]]) -> bool:
    """Do the values of a part differ? Lists and mappings are not shown."""
    if any(isinstance(value, (list, dict)) for part in parts for value in part):
        return False
    return any(len({str(value) for value in part}) > 1 for part in parts)


def _owners(parts: list[list[Any]]) -> int:
    """How many parts have a value at all?"""
    return sum(any(value is not None and value == value for value in part) for part in parts)


def _distinct(values: "pd.Series") -> list[Any]:
    """The values of a column, each one once, or at least each object once; of numbers and texts no more than two."""
    if values.dtype != object:
        return values.drop_duplicates().tolist()[:2]
    return list({id(value): value for value in values.tolist()}.values())


def _used(column: Column, rows: Any) -> list[Any]:
    """The distinct values of some rows; one that is missing is None."""
    values = [*column.distinct(), None]  # where the codes' -1 finds it
    return [values[code] for code in np.unique(column.codes[rows])]
