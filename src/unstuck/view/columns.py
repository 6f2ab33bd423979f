"""The columns of a table of runs that are worth showing: results, and settings that differ between runs."""

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
        and not table[c].map(lambda v: isinstance(v, (list, dict))).any()
        and any(len(set(part[c].map(str))) > 1 for part in several)
    ]
    task = ["task"] if len(several) > 1 else []
    return ["run_id", *task, *(c for c in RESULTS if c in table), *settings]
