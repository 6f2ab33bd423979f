"""`unstuck figures`: the figures of both papers, what has been run and what each costs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from unstuck.errors import BadInput, nearest
from unstuck.papers.catalogue import PROFILES, Profile, available, entries, is_available
from unstuck.papers.cost_table import ALL, cost_of
from unstuck.papers.state import stored_state
from unstuck.runner.hardware import assumptions
from unstuck.view.figures import explain_catalogue, explain_costs

from .common import Json


def known_profile(word: str) -> Profile:
    if word not in PROFILES:
        raise BadInput("--profile", word, "one of " + ", ".join(PROFILES) + nearest(word, PROFILES))
    return word


def figures(
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where to look for what has been run.")
    ] = Path("results"),
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Print the cost of each: runs, steps, operations, hours on a core and on a GPU."),
    ] = False,
    profile: Annotated[
        str, typer.Option("--profile", metavar="quick|cpu|paper", help="For which grid, with --cost.")
    ] = "paper",
    as_json: Json = False,
) -> None:
    """List the figures of both papers, their state and cost.

    Settings of the cpu profile: published; inferred (the authors' setting is not known in full); smaller grid; ours
    (not a figure of the papers).

    [bold]Examples[/bold]

      unstuck figures

      unstuck figures --cost --profile paper
    """
    chosen = known_profile(profile)
    if cost:
        _print_costs(chosen, as_json)
        return
    rows = []
    for entry in entries().values():
        ready = is_available(entry.name)
        rows.append(
            {
                "figure": entry.name,
                "paper": None if entry.ours else entry.paper,
                "shows": entry.shows,
                "needs": entry.needs,
                "setting": entry.setting,
                "available": ready,
                "hours": {p: cost_of(entry.name, p).cpu_hours for p in PROFILES} if ready else None,
                **stored_state(entry.name, results),
            }
        )
    if as_json:
        print(json.dumps({"figures": rows}))
        return
    explain_catalogue(rows)


def _print_costs(profile: Profile, as_json: bool) -> None:
    rows = [cost.as_dict() for cost in (*(cost_of(name, profile) for name in available()), cost_of(ALL, profile))]
    if as_json:
        print(json.dumps({"profile": profile, "figures": rows, "assumptions": assumptions()}))
        return
    explain_costs(rows, profile, str(assumptions()["in words"]))
