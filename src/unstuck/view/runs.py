"""What `unstuck runs` and `--dry-run` print: a table of runs, or of what runs would cost."""

from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.view.columns import telling_columns
from unstuck.view.console import console, duration, new_table, print_rows, shown


def explain_runs(table: pd.DataFrame, directory: Path) -> None:
    if table.empty:
        console().print(f"no runs in {directory}; start one: unstuck train regression --out {directory}")
        return
    columns = telling_columns(table)
    view = new_table(*columns, whole=len(columns))
    for row in table[columns].itertuples(index=False):
        view.add_row(*(shown(v, 5) for v in row))
    print_rows(view)
    counts = table["status"].value_counts()
    console().print("\n" + ", ".join(f"{n} {status}" for status, n in counts.items()))


def explain_run_costs(rows: list[dict[str, Any]], hours: float) -> None:
    table = new_table("run", "task", "model", "seed", "steps", "time on one core")
    for row in rows:
        spec = row["spec"]
        task = " ".join(f"{k}={v}" for k, v in spec["task"].items() if k in ("T", "d", "B", "p", "tokens", "pairs"))
        model = " ".join(f"{k}={v}" for k, v in spec["model"].items() if k in ("layers", "heads"))
        table.add_row(row["run_id"], task, model, str(spec["seed"]), f"{row['steps']:,}", duration(row["hours"]))
    out = console()
    out.print(table)
    runs = "1 run" if len(rows) == 1 else f"{len(rows)} runs"
    bound = all(row["steps"] >= row["spec"]["train"]["max_steps"] for row in rows)  # no law is known
    total = f"{'at most' if bound else 'about'} {duration(hours)}"
    out.print(f"\n{runs}, in all {total} on one core; nothing was run.")
