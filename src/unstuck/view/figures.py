"""What `unstuck figures` and `unstuck reproduce` print."""

from collections import Counter
from pathlib import Path
from typing import Any

from rich.text import Text

from unstuck.view.console import console, duration, new_table, print_rows
from unstuck.view.plain_table import shown

_COLOURS = {"agrees": "green", "differs": "red", "new": "cyan", "beside": "cyan"}


def explain_figures(results: list[dict[str, Any]], directory: Path) -> None:
    out = console()
    table = new_table("figure", "quantity", "paper", "ours", "verdict")
    for result in results:
        for i, claim in enumerate(result["claims"]):
            colour = _COLOURS[claim["verdict"]]
            table.add_row(
                result["figure"] if i == 0 else "",
                claim["quantity"],
                shown(claim["paper"]),
                shown(claim["ours"]),
                Text(claim["verdict"], colour),
            )
    out.print(table)
    names = results[0]["figure"] if len(results) == 1 else "{" + ",".join(r["figure"] for r in results) + "}"
    out.print(f"\nwritten: {directory}/{names}.{{png,pdf,csv,json}}")


def explain_plan(rows: list[dict[str, Any]], hours: float) -> None:
    table = new_table("figure", "work", "steps", "time on one core")
    for row in rows:
        steps = f"{row['steps']:,}" if row["steps"] else "–"
        table.add_row(row["figure"], f"{row['count']} × {row['what']}", steps, duration(row["hours"]))
    out = console()
    out.print(table)
    several = len({row["figure"] for row in rows}) > 1
    shared = ", counting shared runs once for each figure" if several else ""
    out.print(f"\nin all about {duration(hours)}{shared}; nothing was run.")


def explain_catalogue(rows: list[dict[str, Any]]) -> None:
    table = new_table("figure", "setting", "state", "verdict", "cpu profile", "shows")
    for row in rows:
        cost = Text("not yet", "dim") if row["hours"] is None else duration(row["hours"]["cpu"])
        table.add_row(row["figure"], row["setting"], row["state"], row["verdict"] or "–", cost, row["shows"])
    print_rows(table)
    published = [row for row in rows if row["paper"] is not None]
    done = sum(row["state"] == "complete" for row in published)
    counts = Counter(row["setting"] for row in published)
    settings = ", ".join(f"{n} {setting}" for setting, n in counts.items())
    console().print(
        f"\n{len(published)} figures and panels of the papers ({settings}), {done} complete; "
        f"{len(rows) - len(published)} of our own. Cost of other profiles: unstuck figures --cost. "
        "Draw one: unstuck reproduce fig1c"
    )


def explain_costs(rows: list[dict[str, Any]], profile: str, assumed: str) -> None:
    table = new_table("figure", "runs", "steps", "operations", "on a core", "on a GPU")
    for row in rows:
        trained = row["flops"] > 0
        table.add_row(
            row["figure"],
            f"{row['runs']:,}",
            f"{row['steps']:,}" if row["steps"] else "–",
            f"{row['flops']:.1e}" if trained else "–",
            duration(row["cpu_hours"]),
            duration(row["gpu_hours"]) if trained else "–",
        )
    out = console()
    out.print(table)
    out.print(f"\nProfile {profile}. {assumed}")
