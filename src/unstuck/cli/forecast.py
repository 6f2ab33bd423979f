"""`unstuck forecast`: when will a run leave its plateau?"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from unstuck.errors import BadInput

from .common import Json, named_options, real, say, warnings_as_sentences


def forecast(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A run directory, under way or finished, or a .csv, .parquet, .wandb or TensorBoard file.",
            show_default=False,
        ),
    ],
    signal: Annotated[
        str,
        typer.Option(
            "--signal", metavar="NAME", help="links, gain, induction, sharpening, parting, or auto: the best."
        ),
    ] = "auto",
    law: Annotated[
        Path | None, typer.Option("--law", metavar="STORE", help="Runs whose law is a second opinion on this one.")
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option(
            "--formula",
            metavar="FORMULA",
            help='Of that law, in the settings of this run; regression has "d + T/B", recall "tokens + pairs".',
        ),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", parser=real, metavar="NUMBER", help="Coverage of the interval.")
    ] = 0.8,
    as_json: Json = False,
) -> None:
    """Predict when a run will leave its plateau, from the attention of its heads while the loss is still flat.

    Needs the attention of each layer and head over training, as `unstuck train` and `unstuck.Watch` record it:
    columns attn_L_H (to tokens known to matter; with copy_L_H beside them, of a task that needs copying first),
    induction_L_H (of a language model) or readout_entropy_L_H (from the position the answer is read at).
    Only the last needs no knowledge of the task; its signal comes later. Of a curve without these it says whether the
    loss is on a plateau, and since when.

    [bold]Examples[/bold]

      unstuck forecast runs/0123456789abcdef

      unstuck forecast runs/0123456789abcdef --law results/store --formula "d + T/B"
    """
    from unstuck.forecast.forecaster import Forecaster
    from unstuck.forecast.signals import available
    from unstuck.forecast.sources import read_curve

    with named_options({"level", "signal"}), warnings_as_sentences():
        forecaster = Forecaster(signal, None, level)
        if formula is not None and law is None:
            raise BadInput("--formula", formula, "given together with --law, the runs whose law it is")
        curve = read_curve(source)
        status, ended = _ended(source)
        if status in ("emerged", "diverged"):
            at = curve.steps[-1] if ended is None else ended
            said = f"{status} at step {at:,.0f}: there is nothing left to forecast"
            print(_json(ended, None, said, now=curve.steps[-1], **{status: True}) if as_json else said)
            return
        prior = None if law is None else _opinion(source, law, formula)
        if signal == "auto" and not available(curve) and (loss := curve.loss_name) is not None:
            stands = _loss_alone(curve, loss, as_json)
            if prior is not None and stands and prior[0] > curve.steps[-1]:
                say(_word(prior))
            return
        forecaster.prior = prior
        found = forecaster.predict(curve)
    if as_json:
        interval = None if found.low is None else [found.low, found.high]
        rest = {k: v for k, v in asdict(found).items() if k not in ("step", "plateau", "low", "high")}
        rest["diverged"] = found.diverged is not None
        print(_json(found.plateau, interval, str(found), now=found.step, **rest))
        return
    print(found)
    if prior is not None and found.plateau is not None and found.refuted is None:
        say(_word(prior))


def _word(prior: tuple[float, float]) -> str:
    return f"the law alone says {prior[0]:,.0f}, give or take a factor of {math.exp(prior[1]):.2f}"


def _json(step: float | None, interval: list[float | None] | None, evidence: str, *, now: float, **more: Any) -> str:
    """The same keys whatever was found: when it will emerge, within what, why; and at which step that is said."""
    return json.dumps({"step": step, "interval": interval, "evidence": evidence, "now": int(now), **more})


def _ended(source: Path) -> tuple[str, float | None]:
    """What a run of ours came to, and when it left its plateau, if it has."""
    from unstuck.store.store import RunDirectory

    row = None if source.is_file() else RunDirectory(source).row()
    return ("", None) if row is None else (row["status"], row["plateau_steps"] if row["status"] == "emerged" else None)


def _loss_alone(curve: Any, column: str, as_json: bool) -> bool:
    """Say what a loss says without attention: whether it stands still, which is returned, and since when; not for how
    long."""
    import numpy as np

    from unstuck.forecast.plateau import ROWS, falls_slowly, plateau_left, plateau_since
    from unstuck.forecast.sources import astray

    finite = curve.rows(np.isfinite(curve.values(column)))
    losses, steps = finite.values(column).tolist(), finite.steps.tolist()
    now = float(curve.steps[-1])
    why = astray(curve, column)
    start = plateau_since(losses)
    left = plateau_left(losses)
    since = None if start is None else float(steps[start])
    level = None if start is None else float(finite.values(column)[start:].mean())
    if why:
        said = f"{column} is {why} at step {now:,.0f}: the run has diverged"
    elif len(losses) < ROWS:
        said = f"too few rows to tell: {column} has {len(losses)}, a plateau needs {ROWS}"
    elif left is not None:
        said = f"left its plateau at about step {steps[left[1]]:,.0f}: {column} is {losses[-1]:.4g}, at step {now:,.0f}"
    elif since is None:
        part = losses[-max(ROWS, len(losses) // 4) :]
        rises = float(np.mean(part[len(part) // 2 :])) > float(np.mean(part[: len(part) // 2]))
        said = f"not on a plateau at step {now:,.0f}: {column} {'rises' if rises else 'still falls'}"
    else:
        said = f"on a plateau since about step {since:,.0f} ({column} {level:.4g}), now at step {now:,.0f}"
        if (slowly := falls_slowly(losses[start:])) is not None:
            said += f"; it falls slowly all the while, by {slowly:.1%} from the first half of that to the second"
    if as_json:
        found = {"sign": False, "signal": column, "since": since, "loss": level, "diverged": why is not None}
        print(_json(None, None, said, now=now, **found, left=None if left is None else float(steps[left[1]])))
    else:
        print(said)
    stands = since is not None and left is None and not why
    if stands and not as_json:
        say("A loss alone cannot say for how long: record where the heads look with unstuck.Watch, then ask again.")
    return stands


def _opinion(source: Path, store: Path, formula: str | None) -> tuple[float, float]:
    """What the law of other runs says of this one: plateau, and standard deviation of its logarithm."""
    from unstuck.forecast.prior import prior_of
    from unstuck.laws import read_table
    from unstuck.store.store import RunDirectory, flatten

    spec = None if source.is_file() else RunDirectory(source).spec()
    if spec is None:
        raise BadInput("SOURCE", str(source), "a run directory with its settings (spec.yaml), to ask a law about it")
    try:
        table = read_table(store)
    except BadInput as e:
        raise BadInput("--law", str(store), e.allowed or str(e)) from e
    plateau, spread, beyond = prior_of(flatten(spec), table, formula)
    if beyond:
        say(f"warning: this size lies beyond the runs of the law (in {beyond}), so it is believed less.")
    return plateau, spread
