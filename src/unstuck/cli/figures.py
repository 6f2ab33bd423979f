"""`unstuck reproduce`, `unstuck figures` and `unstuck report`: the papers' figures."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unstuck.errors import BadInput, InvalidCombination, nearest

from .common import Json, app, bar, warnings_as_sentences, whole

if TYPE_CHECKING:
    from unstuck.papers.figure import Profile


def _figures(incomplete: str) -> list[str]:
    """For the shell's completion."""
    from unstuck.papers.catalogue import available

    return [name for name in ("all", "theory", *available()) if name.startswith(incomplete)]


@app.command()
def reproduce(
    figure: Annotated[
        str,
        typer.Argument(
            metavar="FIGURE",
            help="A name that `unstuck figures` lists, or theory, or all.",
            show_default=False,
            autocompletion=_figures,
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
    ] = "cpu",
    workers: Annotated[
        int,
        typer.Option("--workers", parser=whole, metavar="INT", help="Processes for `all`; 0 means one for each core."),
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and how long it takes, and stop.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reproduce a figure: its data (CSV), picture (PNG, PDF) and a JSON with ours beside the paper's.

    [bold]Examples[/bold]

      unstuck reproduce fig1c

      unstuck reproduce theory --out figures && unstuck report figures

      unstuck reproduce fig3-left --profile cpu --dry-run
    """
    from unstuck.papers.catalogue import available, entries
    from unstuck.papers.figure import is_trained, load, overall, plan
    from unstuck.papers.reproduce import reproduce as run
    from unstuck.papers.reproduce import reproduce_all

    chosen = _profile(profile)
    if not isinstance(workers, int) or not 0 <= workers <= 1024:
        raise BadInput("--workers", workers, "a whole number from 0 to 1024")
    processes = workers or os.cpu_count() or 1
    names = available() if figure in ("all", "theory") else [figure]
    modules = {name: load(name) for name in names}
    theory = [name for name in names if not is_trained(modules[name])]
    if figure == "theory":
        names = theory = [name for name in theory if entries()[name].needs.startswith("theory")]
    if dry_run:
        _print_plan({name: plan(modules[name], chosen) for name in names}, chosen, as_json)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput("--out", str(out), f"a directory, or a path where one can be made ({e.strerror})") from e
    results = []
    if len(names) > 1:
        with bar("theory figures") as progress:
            results = reproduce_all(theory, chosen, out, processes, progress)
    for name in names if len(names) == 1 else [n for n in names if n not in theory]:
        with bar(name) as progress:
            results.append(run(name, chosen, out, progress, workers=processes))
    results = [r for r in results if r]
    if not results:
        raise InvalidCombination(f"no run of {figure} was finished; see: unstuck runs {out / 'store'}")
    if len(names) == 1:
        result = results[0]
    else:
        result = {
            "figure": figure,
            "ours": {r["figure"]: r["ours"] for r in results},
            "paper": {r["figure"]: r["paper"] for r in results},
            "verdict": overall(r["verdict"] for r in results),
            "verdicts": {r["figure"]: r["verdict"] for r in results},
            "profile": chosen,
            "out": str(out),
        }
    if as_json:
        print(json.dumps(result))
        return
    from unstuck.view.terminal import explain_figures

    explain_figures(results, out)


def _profile(word: str) -> "Profile":
    from unstuck.papers.figure import PROFILES

    if word not in PROFILES:
        raise BadInput("--profile", word, "one of " + ", ".join(PROFILES) + nearest(word, PROFILES))
    return word


def _print_plan(plans: dict[str, Any], profile: str, as_json: bool) -> None:
    rows = [
        {"figure": name, "what": job.what, "count": job.count, "steps": job.steps, "hours": job.seconds / 3600}
        for name, jobs in plans.items()
        for job in jobs
    ]
    total = sum(row["hours"] for row in rows)
    if as_json:
        print(json.dumps({"profile": profile, "jobs": rows, "hours": total}))
        return
    from unstuck.view.terminal import explain_plan

    explain_plan(rows, total)


@app.command()
def figures(
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where to look for what has been run.")
    ] = Path("results"),
    cost: Annotated[
        bool, typer.Option("--cost", help="Say what each takes: runs, steps, operations, hours on a core and on a GPU.")
    ] = False,
    profile: Annotated[
        str, typer.Option("--profile", metavar="quick|cpu|paper", help="For which grid, with --cost.")
    ] = "paper",
    as_json: Json = False,
) -> None:
    """List every figure of both papers: what it shows, how near its setting is to the published one, what it costs,
    what has been run.

    Settings of the cpu profile: published; inferred (the authors' setting is not known in full); smaller grid; ours
    (not a figure of the papers).

    [bold]Examples[/bold]

      unstuck figures

      unstuck figures --cost --profile paper
    """
    from unstuck.papers.catalogue import entries, is_available
    from unstuck.papers.figure import PROFILES, load, plan, stored_state

    chosen = _profile(profile)
    if cost:
        _print_costs(chosen, as_json)
        return
    rows = []
    for entry in entries().values():
        ready = is_available(entry.name)
        hours = {p: sum(job.seconds for job in plan(load(entry.name), p)) / 3600 for p in PROFILES} if ready else None
        rows.append(
            {
                "figure": entry.name,
                "paper": None if entry.ours else entry.paper,
                "shows": entry.shows,
                "needs": entry.needs,
                "setting": entry.setting,
                "available": ready,
                "hours": hours,
                **stored_state(results / f"{entry.name}.json", load(entry.name) if ready else None),
            }
        )
    if as_json:
        print(json.dumps({"figures": rows}))
        return
    from unstuck.view.terminal import explain_catalogue

    explain_catalogue(rows)


def _print_costs(profile: "Profile", as_json: bool) -> None:
    from unstuck.papers.costs import assumptions, figure_costs

    rows = figure_costs(profile)
    if as_json:
        print(json.dumps({"profile": profile, "figures": rows, "assumptions": assumptions()}))
        return
    from unstuck.view.terminal import explain_costs

    explain_costs(rows, profile, assumptions()["in words"])


@app.command()
def report(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A run store, or what `unstuck reproduce --out DIR` wrote, or both (runs in DIR/store).",
        ),
    ] = Path("runs"),
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The HTML file; DIR/report.html unless told.")
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option(
            "--formula", metavar="FORMULA", help="Of the law that is shown; chosen by what varies unless told."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML file about runs and figures: a table to sort and filter, learning curves, laws with residuals,
    attention over training, ours beside the paper's. It opens from disk, without a network.

    [bold]Examples[/bold]

      unstuck report runs

      unstuck report runs --formula "d + T/B" --out report.html
    """
    from unstuck.view.report.page import write_report

    with warnings_as_sentences():
        target = write_report(directory, out or directory / "report.html", formula)
    print(json.dumps({"report": str(target)}) if as_json else f"report: {target}")
