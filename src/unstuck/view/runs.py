"""What `unstuck runs` prints: a table of runs."""

from collections import Counter
from pathlib import Path

import numpy as np

from unstuck.store.cells import Cells, Column
from unstuck.view.columns import telling_columns
from unstuck.view.plain_table import one_line, print_table, shown


def explain_runs(table: Cells, directory: Path) -> None:
    if not len(table):
        print(one_line(f"no runs in {directory}; start one: unstuck train regression --out {directory}"))
        return
    print_table({name: _texts(table.columns[name]) for name in telling_columns(table)})
    counts = Counter(table.columns["status"].values())
    print("\n" + one_line(", ".join(f"{n} {status}" for status, n in counts.most_common())))


def _texts(column: Column) -> list[str]:
    """The cells of a column; each distinct value is written once."""
    texts = [*(shown(value, 5) for value in column.distinct()), shown(None)]  # where the codes' -1 finds it
    return np.array(texts, dtype=object)[column.codes].tolist()
