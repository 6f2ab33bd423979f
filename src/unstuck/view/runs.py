"""What `unstuck runs` prints: a table of runs."""

from pathlib import Path

import numpy as np
import pandas as pd

from unstuck.view.columns import telling_columns
from unstuck.view.plain_table import one_line, print_table, shown


def explain_runs(table: pd.DataFrame, directory: Path) -> None:
    if table.empty:
        print(one_line(f"no runs in {directory}; start one: unstuck train regression --out {directory}"))
        return
    print_table({name: _texts(table[name]) for name in telling_columns(table)})
    counts = table["status"].value_counts()
    print("\n" + one_line(", ".join(f"{n} {status}" for status, n in counts.items())))


def _texts(values: pd.Series) -> list[str]:
    """The cells of a column; of numbers and texts each distinct one is written once."""
    if values.dtype == object:
        return [shown(value, 5) for value in values.tolist()]
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    return np.array([shown(value, 5) for value in distinct.tolist()], dtype=object)[codes].tolist()
