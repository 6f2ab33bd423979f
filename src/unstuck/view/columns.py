"""The columns of a table of runs that are worth showing: results, and settings that differ between runs."""

from typing import Any

import pandas as pd

RESULTS = ("status", "plateau_steps", "steps", "seconds")


def telling_columns(table: pd.DataFrame) -> list[str]:
    """The run's id, its results, and the settings that differ between runs of one task; settings that only some tasks
    have always differ between tasks."""
    kinds = table["task"].map(str) if "task" in table else pd.Series("", index=table.index)
    several = [part for _, part in table.groupby(kinds, sort=False)]
    known = {"run_id", "task", *RESULTS}
    settings = [
        str(c)
        for c in table
        if c not in known
        and not str(c).startswith("crossing_")
        and _tells_apart([_distinct(part[c]) for part in several])
    ]
    task = ["task"] if len(several) > 1 else []
    return ["run_id", *task, *(c for c in RESULTS if c in table), *settings]


def _tells_apart(parts: list[list[Any]]) -> bool:
    """Do the values of a part differ? Lists and mappings are not shown."""
    if any(isinstance(value, (list, dict)) for part in parts for value in part):
        return False
    return any(len({str(value) for value in part}) > 1 for part in parts)


def _distinct(values: pd.Series) -> list[Any]:
    """The values of a column, each one once, or at least each object once; of numbers and texts no more than two."""
    if values.dtype != object:
        return values.drop_duplicates().tolist()[:2]
    return list({id(value): value for value in values.tolist()}.values())
