"""`unstuck report`: one HTML file about runs and figures."""

import json
from pathlib import Path
from typing import Annotated

import typer

from unstuck.view.report.page import write_report

from .common import Json, show, warnings_as_sentences


def report(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A run store, a run, or what `unstuck reproduce --out DIR` wrote, also with runs in DIR/store.",
        ),
    ] = Path("runs"),
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The HTML file; default DIR/report.html.")
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option("--formula", metavar="FORMULA", help="The law to show; by default, of the sizes that vary."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML file about runs and figures.

    It has a table to sort and filter, learning curves, laws with residuals, attention over training, and our numbers
    beside the paper's. It opens from disk, without a network.

    [bold]Examples[/bold]

      unstuck report runs

      unstuck report runs --formula "d + T/B" --out report.html
    """
    with warnings_as_sentences():
        target = write_report(directory, out or directory / "report.html", formula)
    show(json.dumps({"report": str(target)}) if as_json else f"report: {target}")
