"""`unstuck runs`: what is in a run store."""

import json
from pathlib import Path
from typing import Annotated

import typer

from unstuck.errors import BadInput
from unstuck.store.index import RunIndex
from unstuck.view.runs import explain_runs

from .common import Json, show, warnings_as_sentences


def runs(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run store.")] = Path("runs"),
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Show the table of runs in a store."""
    if not directory.is_dir():
        raise BadInput("DIR", str(directory), "a directory of runs; `unstuck train regression --out DIR` makes one")
    with warnings_as_sentences():
        table = RunIndex(directory).look()
    if as_json:
        print(json.dumps({"runs": json.loads(table.frame.to_json(orient="records"))}))
    elif as_csv:
        show(table.frame.to_csv(index=False).removesuffix("\n"))
    else:
        explain_runs(table.cells, directory)
