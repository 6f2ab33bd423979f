"""`unstuck forecast`: when a run will leave its plateau."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from unstuck.errors import BadInput
from unstuck.forecast import ExitRule, Forecast, Forecaster, Outcome
from unstuck.forecast.sources import finished, read_curve

from .common import Json, named_options, real, say, show, warnings_as_sentences


def forecast(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A run directory, a folder of W&B or Hugging Face's Trainer, or a .csv, .parquet, .wandb, "
            "trainer_state.json or TensorBoard file.",
            show_default=False,
        ),
    ],
    signal: Annotated[
        str,
        typer.Option(
            "--signal",
            metavar="NAME",
            help="attention, induction, entropy, or auto: the first of these that the curve has.",
        ),
    ] = "auto",
    law: Annotated[
        Path | None, typer.Option("--law", metavar="STORE", help="Runs whose power law gives a second estimate.")
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option(
            "--formula",
            metavar="FORMULA",
            help='Formula of that law; the default is "d + T/B" for regression, "tokens + pairs" for recall.',
        ),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", parser=real, metavar="NUMBER", help="Coverage of the interval.")
    ] = 0.8,
    as_json: Json = False,
) -> None:
    """Predict when a run will leave its plateau, from the attention of its heads while the loss is still flat.

    Needs the attention of each layer and head over training, as `unstuck train` and `unstuck.Watch` record it:
    columns attn_L_H (to relevant tokens; together with copy_L_H for a task that needs copying first), induction_L_H
    (of a language model) or readout_entropy_L_H (from the position the answer is read at). Only the last needs no
    knowledge of the task; its signal comes later. Without these columns the answer is whether the loss is on a plateau,
    and since when.

    [bold]Examples[/bold]

      unstuck forecast runs/0123456789abcdef

      unstuck forecast runs/0123456789abcdef --law results/store --formula "d + T/B"
    """
    with named_options({"level", "signal"}), warnings_as_sentences():
        Forecaster(signal, None, level)  # refuses wrong values before files are read
        if formula is not None and law is None:
            raise BadInput("--formula", formula, "given together with --law, the runs whose law it is")
        curve = read_curve(source)
        found, prior = finished(source, curve), None
        if found is None:
            prior = None if law is None else _prior(source, law, formula)
            if prior is not None and curve.loss_name is not None and ExitRule().exits(curve):
                say("warning: the loss has left a plateau, and the law is one of the first; it is left out.")
                prior = None
            found = Forecaster(signal, prior, level, task=_task(source)).predict(curve)
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    show(found if source.is_file() else _with_clock(found, source))
    _add(found, prior, watched=bool(curve.measures))


def _task(source: Path) -> str | None:
    """The name of the task of a run directory; None for a file."""
    if source.is_file():
        return None
    from unstuck.store.store import RunDirectory  # with pydantic, which a file of numbers does not need

    return (RunDirectory(source).spec() or {}).get("task", {}).get("name")


def _with_clock(found: Forecast, source: Path) -> str:
    """The answer, with the time by the clock that a run directory allows."""
    from unstuck.store.store import RunDirectory  # with pydantic, which a file of numbers does not need
    from unstuck.view.expected import seconds_per_step, sentence

    return sentence(found, seconds_per_step(RunDirectory(source)))


def _add(found: Forecast, prior: tuple[float, float, float] | None, *, watched: bool) -> None:
    """On stderr: what would say more than a loss alone, and what the law predicts without the signal."""
    if found.outcome is Outcome.PLATEAU:
        more = "give the watch targets=" if watched else "record attention with unstuck.Watch"
        say(f"A loss alone does not show how long the plateau will last: {more}.")
    open_ended = found.outcome in (Outcome.PLATEAU, Outcome.EMERGES)
    if prior is not None and open_ended and found.notes.refuted_law is None and prior[0] > found.now:
        say(f"the law alone predicts step {prior[0]:,.0f}, within a factor of {math.exp(prior[1]):.2f}")


def _prior(source: Path, store: Path, formula: str | None) -> tuple[float, float, float]:
    """What the law of other runs predicts for this one's first exit: the step, the standard deviation of its logarithm,
    and the probability that such a run emerges."""
    # With SciPy and pydantic, which a forecast without a law does not need.
    from unstuck.forecast.prior import prior_of
    from unstuck.laws.tables import read_table
    from unstuck.store.store import RunDirectory, Store, flatten

    spec = None if source.is_file() else RunDirectory(source).spec()
    if spec is None:
        raise BadInput("SOURCE", str(source), "a run directory with its settings (spec.yaml), which a law needs")
    try:
        table = read_table(store)
    except BadInput as e:
        raise BadInput("--law", str(store), e.allowed or str(e)) from e
    curve_of = (lambda run_id: Store(store).run(run_id).curve()) if store.is_dir() else None
    step, spread, probability, beyond = prior_of(flatten(spec), table, formula, curve_of)
    if beyond:
        say(f"warning: this size lies beyond the runs of the law (in {beyond}), so its estimate gets less weight.")
    return step, spread, probability
