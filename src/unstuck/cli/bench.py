"""`unstuck bench forecast`: the leaderboard of forecasters."""

import json
from pathlib import Path
from typing import Annotated

import typer

from unstuck.errors import BadInput
from unstuck.forecast.benchmark import load_entrant, results
from unstuck.forecast.scoring import leaderboard
from unstuck.view.console import new_table, print_rows

from .common import Json, bar, say, warnings_as_sentences


def bench() -> None:
    """Compare forecasters on all runs of a store: unstuck bench forecast."""
    raise BadInput("the word after `unstuck bench`", "missing", "forecast")


def forecast(
    store: Annotated[
        Path,
        typer.Option("--store", metavar="DIR", help="Runs to forecast."),
    ] = Path("results/store"),
    entrant: Annotated[
        list[str] | None,
        typer.Option("--entrant", metavar="MODULE:CLASS", help="A forecaster of your own, judged beside ours."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare forecasters on all runs of a store.

    Each run is forecast at many steps while its loss is flat, by forecasters that were fitted on runs of other sizes.
    Errors are medians over runs, with 95% intervals. An alarm is a probability above one half that the event comes
    before twice the present step. The runs of this repository take about four minutes.

    [bold]Examples[/bold]

      unstuck bench forecast

      unstuck bench forecast --entrant my_forecaster:Half --json
    """
    if not store.is_dir():
        raise BadInput("--store", str(store), "a directory of runs; `unstuck sweep ... --out DIR` makes one")
    more = [load_entrant(name) for name in entrant or ()]
    with warnings_as_sentences(), bar("forecasts") as update:
        found = results(store, more, update)
    about, scored = found.iloc[0], found.iloc[1:]
    if as_json:
        parts = scored.groupby("entrant", sort=False)
        entries = [
            {"name": name, "scores": json.loads(part.drop(columns="entrant").to_json(orient="records"))}
            for name, part in parts
        ]
        counted = {"moments": int(about["value"]), "runs": int(about["runs"]), "benchmark": about["part"]}
        print(json.dumps({"entrants": entries, **counted}))
        return
    board = leaderboard(scored)
    table = new_table(*board.columns, whole=1)
    for row in board.itertuples(index=False):
        table.add_row(*row)
    print_rows(table)
    say(f"{about['value']:,.0f} moments of {about['runs']} runs ({about['part']})")
