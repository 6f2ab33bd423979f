"""What `--dry-run` prints: what runs would cost."""

from typing import Any

from unstuck.view.console import console, duration, new_table


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
