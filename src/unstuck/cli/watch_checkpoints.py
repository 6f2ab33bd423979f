"""`unstuck watch-checkpoints`: one curve over a series of checkpoints."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from unstuck.attach.checkpoints import Series
from unstuck.attach.checkpoints import watch_checkpoints as measure_all
from unstuck.attach.saving import save_rows
from unstuck.columns import COPY_ADVANTAGE
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.forecast import Forecast, Forecaster
from unstuck.view.plain_table import print_table

from .common import Json, bar, say, show, warnings_as_sentences


def watch_checkpoints(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A folder of Hugging Face checkpoints, or a model in Hugging Face's cache (models--ORG--NAME).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Save the curve there, as a run directory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the heads of a series of checkpoints: one curve, in the order of their steps.

    Needs checkpoints with config.json and safetensors on disk; nothing is downloaded, and no code of a folder is run.
    The step is that of the Trainer's state beside a checkpoint, or in the name of the folder or revision, such as
    checkpoint-500 or step3000. Checkpoints that hold the same weights are named and measured once.

    [bold]Examples[/bold]

      unstuck watch-checkpoints output

      unstuck watch-checkpoints ~/.cache/huggingface/hub/models--EleutherAI--pythia-70m --out runs/pythia
    """
    with warnings_as_sentences(), bar("checkpoints") as update:
        series = measure_all(directory, update)
        if out is not None and series.rows:
            save_rows(out, series.rows, series.model, series.mark)
    said = _forecast(series)
    if as_json:
        print(json.dumps(_as_dict(series, said)))
        return
    if series.rows:
        _print(series)
    for name, same in series.final.items():
        say(f"{name} holds the final weights, those of {same}.")
    for name, same in series.duplicates.items():
        say(f"{name} holds the weights of {same}.")
    for name, why in series.skipped.items():
        say(f"{name} is left out: {why}.")
    if said is not None:
        show(said)


def _forecast(series: Series) -> Forecast | None:
    try:
        return Forecaster().predict(series.curve) if series.rows else None
    except BadInput:
        return None


def _as_dict(series: Series, said: Forecast | None) -> dict[str, Any]:
    named = zip(series.names, series.rows, strict=True)
    rows = [{"checkpoint": name} | {k: v if math.isfinite(v) else None for k, v in row.items()} for name, row in named]
    found: dict[str, Any] = {"rows": rows, "duplicates": series.duplicates, "final": series.final}
    return found | {"skipped": series.skipped, "forecast": None if said is None else said.to_dict()}


def _print(series: Series) -> None:
    curve = series.curve
    columns = {"checkpoint": series.names, "step": [f"{step:,.0f}" for step in curve.steps]}
    for measure in ("previous_token", "induction"):
        if measure in curve.measures:
            columns[measure] = [f"{value:.3f}" for value in curve.best(measure)]
            columns[f"{measure} head"] = [_best(curve, i, measure) for i in range(len(curve))]
    if curve.has(COPY_ADVANTAGE):
        columns[COPY_ADVANTAGE] = [f"{value:.3f}" for value in curve.values(COPY_ADVANTAGE)]
    print_table(columns)


def _best(curve: Curve, row: int, measure: str) -> str:
    if math.isnan(curve.best(measure)[row]):  # as of weights that have diverged
        return ""
    layer, head = curve.rows([i == row for i in range(len(curve))]).best_head(measure)
    return f"{layer}.{head}"
