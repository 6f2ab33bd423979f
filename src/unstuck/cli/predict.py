"""`unstuck predict`: the length of a plateau before training."""

import json
import math
from typing import Annotated, Any

import typer

from unstuck.laws.regression import THRESHOLD, Sizes, TransformerLaw
from unstuck.theory import Flow, blow_up_time, escape_time, finish_time, plateau_estimate, rate
from unstuck.theory.setting import check_threshold
from unstuck.view.prediction import explain_prediction

from .common import Json, named_options, real, whole


def _transformer(T: int, d: int, B: int, p: float, threshold: float) -> dict[str, Any] | None:
    """What the law of our Transformers expects, in steps; None where they were not trained."""
    if p > 0 or threshold != THRESHOLD:
        return None
    return TransformerLaw.read().predict(Sizes(T, d, B))


def predict(
    T: Annotated[int, typer.Option("--T", parser=whole, metavar="INT", help="Sequence length, at least 2.")],
    d: Annotated[int, typer.Option("--d", parser=whole, metavar="INT", help="Dimension of a token, at least 1.")],
    B: Annotated[
        int,
        typer.Option(
            "--B", parser=whole, metavar="INT", help="Copies of the relevant token in the context, 1 to T - 1."
        ),
    ] = 1,
    p: Annotated[
        float,
        typer.Option(
            "--p",
            parser=real,
            metavar="NUMBER",
            help="Chance that the relevant token is the one frequent token, 0 to 1.",
        ),
    ] = 0.0,
    flow: Annotated[
        str, typer.Option("--flow", metavar="exact|reduced", help="The toy model's own flow, or the paper's reduction.")
    ] = "exact",
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold", parser=real, metavar="NUMBER", help="Test loss that ends the plateau; it starts at 0.5."
        ),
    ] = 0.1,
    as_json: Json = False,
) -> None:
    """Predict the length of the plateau from theory, before training.

    The problem is single-location regression (Zucchet et al. 2025): the target depends on one of T tokens, and
    the toy model y = W sum softmax(a) x has to find which one. The answer integrates the model's gradient flow. Times
    are training times: steps times learning rate. Beside it stands what the power law of our Transformers expects, in
    steps.

    [bold]Examples[/bold]

      unstuck predict --T 512 --d 64

      unstuck predict --T 4096 --d 64 --B 8 --flow reduced --json

      unstuck predict --T 4096 --d 256 --p 0.1

    [bold]Induction heads in a language model[/bold], by published laws and ours; see unstuck predict induction --help

      unstuck predict induction --batch 32 --context 128
    """
    with named_options({"T", "d", "B", "p", "flow", "threshold"}):
        setting = Flow(T, d, B, p, flow)  # type: ignore[arg-type]
        eps = 1 - 2 * check_threshold(threshold)
    plateau = setting.plateau(threshold)
    estimate = plateau_estimate(setting, threshold)
    answer = {
        "plateau": plateau.time,
        "escape_time": escape_time(setting, eps),
        "rate": rate(setting),
        "flow": flow,
        "blow_up_time": blow_up_time(setting),
        "estimate": estimate if math.isfinite(estimate) else None,
        "threshold": threshold,
        "T": T,
        "d": d,
        "B": B,
        "p": p,
        "reason": plateau.reason,
        "transformer": _transformer(T, d, B, p, threshold),
    }
    if as_json:
        print(json.dumps(answer))
        return
    explain_prediction(setting, answer, never=plateau.never, finish=finish_time(setting, threshold))
