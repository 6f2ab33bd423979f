"""What `unstuck figures` and `unstuck reproduce` print."""

from collections import Counter
from pathlib import Path
from typing import Any

from rich.text import Text

from unstuck.view.console import console, duration, new_table
from unstuck.view.plain_table import GAP, cut, print_table, shown, terminal_width

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


def estimate(figure: str, profile: str, runs: int, hours: float, cores: int) -> str:
    """What a figure will take, before it is made."""
    work = f"{runs:,} trained run{'s' if runs > 1 else ''}, " if runs else ""
    on = f"{cores} cores" if cores > 1 else "one core"
    return f"{figure}, profile {profile}: {work}about {duration(hours)} on {on}."


def explain_plan(rows: list[dict[str, Any]], hours: float, profile: str, store: Path) -> None:
    table = new_table("figure", "work", "steps", "time on one core")
    for row in rows:
        steps = f"{row['steps']:,}" if row["steps"] else "–"
        table.add_row(row["figure"], f"{row['count']} × {row['what']}", steps, duration(row["hours"]))
    out = console()
    out.print(table)
    several = len({row["figure"] for row in rows}) > 1
    shared = ", counting shared runs once for each figure" if several else ""
    out.print(f"\nprofile {profile}: in all about {duration(hours)}{shared}; nothing was run.")
    trained = [row for row in rows if row["stored"] is not None]
    if trained:
        runs, stored = (sum(row[key] for row in trained) for key in ("count", "stored"))
        out.print(f"{stored:,} of the {runs:,} runs are stored in {store} already and would not be run again.")


def explain_catalogue(rows: list[dict[str, Any]]) -> None:
    width = terminal_width()
    print_table(catalogue_columns(rows, width))
    published = [row for row in rows if row["paper"] is not None]
    done = sum(row["state"] == "complete" for row in published)
    counts = Counter(row["setting"] for row in published)
    settings = ", ".join(f"{n} {setting}" for setting, n in counts.items())
    console().print(
        f"\n{len(published)} figures and panels of the papers ({settings}),\n{done} complete; "
        f"{len(rows) - len(published)} of our own. {_ABOUT_COSTS if width >= WIDE else _COSTS_ELSEWHERE}\n"
        "Draw one: unstuck reproduce fig1c"
    )


WIDE = 110  # columns of a terminal that has room for state, verdict and cost beside a title
_BRIEFLY = {
    "with an earlier budget": "earlier budget",
    "with other settings": "other settings",
    "quick run only": "quick only",
}
_ABOUT_COSTS = (
    "The cost is that of all runs of a figure, done or not;\n"
    "figures share runs, so costs do not add up. Of other profiles: unstuck figures --cost."
)
_COSTS_ELSEWHERE = "What each costs: unstuck figures --cost --profile cpu"


def catalogue_columns(rows: list[dict[str, Any]], width: float) -> dict[str, list[str]]:
    """The table of figures, with titles cut so that a line takes no more than `width`."""
    columns = {"figure": [row["figure"] for row in rows], "setting": [row["setting"] for row in rows]}
    if width < WIDE:
        columns["result"] = [_result(row) for row in rows]
    else:
        columns["state"] = [row["state"] for row in rows]
        columns["verdict"] = [row["verdict"] or "–" for row in rows]
        hours = [row["hours"] for row in rows]
        columns["cpu profile"] = ["not yet" if h is None else duration(h["cpu"]) for h in hours]
    left = width - sum(max(map(len, [name, *texts])) + len(GAP) for name, texts in columns.items())
    return columns | {"shows": [cut(row["shows"], left) for row in rows]}


def _result(row: dict[str, Any]) -> str:
    """The verdict of a figure that is complete; of any other how far it is."""
    state = str(row["state"])
    return str(row["verdict"] or "–") if state == "complete" else _BRIEFLY.get(state, state)


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
