"""`unstuck predict induction`: when induction heads form in a language model, by every law."""

import json
from typing import Annotated

import typer

from unstuck.laws.induction import OurRuns, Setting, predictions
from unstuck.view.induction import explain_induction

from .common import Json, named_options, real, whole


def induction(
    batch: Annotated[int, typer.Option("--batch", parser=whole, metavar="INT", help="Sequences a step.")],
    context: Annotated[int, typer.Option("--context", parser=whole, metavar="INT", help="Tokens a sequence.")],
    burst: Annotated[
        float,
        typer.Option(
            "--burst",
            parser=real,
            metavar="NUMBER",
            help="Share of sequences that repeat themselves, 0 to 1; 0 is natural text.",
        ),
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Predict when induction heads form in a language model, by each published law and by ours.

    Each law gives steps and tokens. A law that gives only a ratio is multiplied with the steps of a measured run of
    ours. Our own law is a power law of runs with two layers, and has an interval for a new run.

    [bold]Examples[/bold]

      unstuck predict induction --batch 32 --context 128

      unstuck predict induction --batch 32 --context 128 --burst 0.1 --json
    """
    with named_options({"batch", "context", "burst"}):
        setting = Setting(batch, context, burst)
    ours = OurRuns.read()
    found = predictions(setting, ours)
    if as_json:
        laws = [prediction.as_json(setting) for prediction in found]
        event = None if ours is None else ours.event
        print(json.dumps({"laws": laws, "batch": batch, "context": context, "burst": burst, "event": event}))
        return
    explain_induction(setting, found)
