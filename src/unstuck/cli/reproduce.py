"""`unstuck reproduce`: the papers' figures."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from unstuck.errors import BadInput, InvalidCombination
from unstuck.papers.catalogue import available, entries
from unstuck.papers.cost_table import cost_of
from unstuck.papers.figure import FigureModule, Profile, is_trained, load, overall
from unstuck.papers.lab import plan, stored_runs
from unstuck.papers.reproduce import reproduce as reproduce_one
from unstuck.papers.reproduce import reproduce_all
from unstuck.view.figures import estimate, explain_figures, explain_plan

from .common import Json, bar, processes, say, whole
from .figures import known_profile

ASK_HOURS = 1.0  # of computing, from which on a person is asked first


def _names_starting(incomplete: str) -> list[str]:
    """Completions for the shell."""
    return [name for name in ("all", "theory", *available()) if name.startswith(incomplete)]


def reproduce(
    figure: Annotated[
        str,
        typer.Argument(
            metavar="FIGURE",
            help="A name that `unstuck figures` lists, or theory, or all.",
            show_default=False,
            autocompletion=_names_starting,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go.")] = Path("figures"),
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="quick|cpu|paper",
            help="Minutes, hours on two cores, or the paper's own grid. Theory figures run in full.",
        ),
    ] = "quick",
    workers: Annotated[
        int,
        typer.Option("--workers", parser=whole, metavar="INT", help="Processes for `all`; 0 means one for each core."),
    ] = 0,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would run, how long it takes and what --out has already, and stop."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before hours of computing.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce a figure: data, picture, comparison.

    Writes the data (CSV), the picture (PNG, PDF) and a JSON file with our numbers beside the paper's. Says first how
    long that takes, and asks on a terminal if it is more than an hour; a script is not asked.

    [bold]Examples[/bold]

      unstuck reproduce fig1c

      unstuck reproduce theory --out figures && unstuck report figures

      unstuck reproduce fig3-left --profile cpu --dry-run

      unstuck reproduce fig3-left --profile cpu --yes
    """
    chosen = known_profile(profile)
    many = processes(workers)
    found = _chosen(figure)
    if dry_run:
        _print_plan(found, chosen, out / "store", as_json)
        return
    _announce(figure, list(found), chosen, many, yes)
    _make_directory(out)
    results = _reproduced(found, chosen, out, many)
    if not results:
        raise InvalidCombination(f"no run of {figure} was finished; see: unstuck runs {out / 'store'}")
    if as_json:
        print(json.dumps(results[0] if len(found) == 1 else _joined(figure, results, chosen, out)))
    else:
        explain_figures(results, out)


def _chosen(figure: str) -> dict[str, FigureModule]:
    """The figures that a name stands for: one, all, or those of theory alone."""
    names = available() if figure in ("all", "theory") else [figure]
    found = {name: load(name) for name in names}
    if figure != "theory":
        return found
    return {n: f for n, f in found.items() if not is_trained(f) and entries()[n].needs.startswith("theory")}


def _announce(figure: str, names: list[str], profile: Profile, many: int, yes: bool) -> None:
    """Say on stderr what it takes; on a terminal, ask whether to spend hours."""
    costs = [cost_of(name, profile) for name in names]
    hours = sum(cost.cpu_hours for cost in costs) / many
    say(estimate(figure, profile, sum(cost.runs for cost in costs if cost.is_trained), hours, many))
    asked = hours > ASK_HOURS and not yes and sys.stdin.isatty() and sys.stderr.isatty()
    if asked and not _agreed("Finished runs are kept when it is stopped. Start?"):
        say("nothing was run.")
        raise typer.Exit(1)


def _agreed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # Ctrl-C or Ctrl-D
        return False


def _make_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput("--out", str(out), f"a directory, or a path where one can be made ({e.strerror})") from e


def _reproduced(found: dict[str, FigureModule], profile: Profile, out: Path, many: int) -> list[dict[str, Any]]:
    """The results of figures: several untrained ones side by side, each other one with all processes for its runs."""
    together = [name for name, figure in found.items() if len(found) > 1 and not is_trained(figure)]
    results = []
    if together:
        with bar("theory figures") as progress:
            results = reproduce_all(together, profile, out, many, progress)
    for name in found:
        if name not in together:
            with bar(name) as progress:
                results.append(reproduce_one(name, profile, out, progress, workers=many))
    return [result for result in results if result]


def _joined(figure: str, results: list[dict[str, Any]], profile: str, out: Path) -> dict[str, Any]:
    """The results of several figures as one."""
    return {
        "figure": figure,
        "ours": {r["figure"]: r["ours"] for r in results},
        "paper": {r["figure"]: r["paper"] for r in results},
        "verdict": overall(r["verdict"] for r in results),
        "verdicts": {r["figure"]: r["verdict"] for r in results},
        "profile": profile,
        "out": str(out),
    }


def _print_plan(found: dict[str, FigureModule], profile: Profile, store: Path, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"figure": name, "what": job.what, "count": job.count, "steps": job.steps, "hours": job.seconds / 3600}
        for name, figure in found.items()
        for job in plan(figure, profile)
    ]
    for row in rows:
        figure: Any = found[row["figure"]]
        row["stored"] = stored_runs(figure.runs(profile), store) if is_trained(figure) else None
    total = sum(row["hours"] for row in rows)
    if as_json:
        print(json.dumps({"profile": profile, "jobs": rows, "hours": total}))
        return
    explain_plan(rows, total, profile, store)
