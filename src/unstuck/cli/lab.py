"""`unstuck train` and `unstuck sweep`: the laboratory."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unstuck.attach.trackers import TensorBoardTracker, WandbTracker
from unstuck.config import RunSpec, load_spec
from unstuck.errors import BadInput
from unstuck.runner.cost import predicted_cost
from unstuck.runner.execute import execute
from unstuck.runner.interrupts import interrupts
from unstuck.runner.memory import keep_freed_memory
from unstuck.runner.on_ray import run_on_ray
from unstuck.runner.sweep import expand, run_sweep, split_values
from unstuck.store.store import Store
from unstuck.view.run_costs import explain_run_costs
from unstuck.view.terminal import explain_run, live

from .common import Json, bar, processes, real, say, show, warnings_as_sentences, whole
from .spec_words import Overrides, Spec


def train(
    spec: Spec,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The run store.")] = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many steps and hours it would take, and stop.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the last checkpoint of a run that emerged.")] = False,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", metavar="DIR", help="Also write the curve for TensorBoard.")
    ] = None,
    wandb: Annotated[
        str | None, typer.Option("--wandb", metavar="PROJECT", help="Also log the curve to Weights & Biases.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train one run until it emerges, or until train.max_steps.

    A run that is in the store already is not trained again: its stored result is printed.

    [bold]Examples[/bold]

      unstuck train regression task.T=32 task.d=16 seed=0

      unstuck train regression task.T=16 task.d=8 optim.name=sgd optim.lr=5e-3 train.max_steps=20000

      unstuck train recall task.tokens=32 task.pairs=4 task.B=2

      unstuck train text task.burst=0.25 task.corpus=notes.txt
    """
    run = _one_spec(spec, overrides or [])
    if dry_run:
        print_run_costs([run], as_json)
        return
    keep_freed_memory()
    trackers = _trackers(run, tensorboard, wandb)
    try:
        with warnings_as_sentences(), live() as show, interrupts() as interrupted:

            def on_row(run: Any) -> None:
                for observer in (show, *trackers):
                    observer(run)

            done = execute(run, Store(out), stop=interrupted, on_row=on_row, keep=keep)
    finally:
        for tracker in trackers:
            tracker.close()
    if done is None:
        say(f"unstuck: another process is training this run ({run.run_id}).")
        raise typer.Exit(1)
    if done.result.status == "stopped":
        raise KeyboardInterrupt
    if as_json:
        print(json.dumps(done.as_dict()))
        return
    explain_run(run, done, out)


def _one_spec(spec: str, words: list[str]) -> RunSpec:
    """The specification of one run; several values of a key, each of them allowed, are for a sweep."""
    try:
        return load_spec(spec, words)
    except BadInput as e:
        for word in words:
            if word.partition("=")[0] == e.field and _is_for_sweep(spec, words, word):
                raise BadInput(e.field, e.value, f"{e.allowed}; for several values: unstuck sweep {spec} {word}") from e
        raise


def _is_for_sweep(spec: str, words: list[str], word: str) -> bool:
    """Does a word give several values, separated by commas, of which each alone is allowed?"""
    key, _, text = word.partition("=")
    values = split_values(text)
    try:
        for value in values:
            load_spec(spec, [f"{key}={value}" if w == word else w for w in words])
    except BadInput:
        return False
    return len(values) > 1


def _trackers(run: Any, tensorboard: Path | None, wandb: str | None) -> list[Any]:
    trackers: list[Any] = [TensorBoardTracker(tensorboard, run)] if tensorboard else []
    return [*trackers, WandbTracker(wandb, run)] if wandb else trackers


def sweep(
    spec: Spec,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The run store.")] = Path("runs"),
    workers: Annotated[
        int, typer.Option("--workers", parser=whole, metavar="INT", help="Processes; 0 means one for each core.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List every run with its predicted steps and hours, and stop.")
    ] = False,
    checkpoint: Annotated[
        float, typer.Option("--checkpoint", parser=real, metavar="SECONDS", help="Time between checkpoints.")
    ] = 20.0,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Run on the Ray cluster at this address; auto finds one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run every combination of lists: task.T=16,32 task.d=8,16 is four runs.

    Finished runs are not run again.

    [bold]Examples[/bold]

      unstuck sweep regression task.T=16,32,64 task.d=8,16,32 seed=0,1,2 --workers 2 --out runs/

      unstuck sweep regression task.T=16,32,64 seed=0,1,2 --ray auto --out /shared/runs
    """
    many = processes(workers)
    if not isinstance(checkpoint, float) or not 0 < checkpoint < 1e6:
        raise BadInput("--checkpoint", checkpoint, "a number of seconds above 0")
    specs = expand(spec, overrides or [])
    if dry_run:
        print_run_costs(specs, as_json)
        return
    with warnings_as_sentences(), bar("starting") as progress:
        if ray is not None:
            done = run_on_ray(specs, Store(out), address=ray, checkpoint_seconds=checkpoint, progress=progress)
        else:
            done = run_sweep(specs, Store(out), workers=many, checkpoint_seconds=checkpoint, progress=progress)
    for run_id, message in done.failed.items():
        say(f"warning: run {run_id} failed: {message}")
    counts = done.as_json()
    if as_json:
        print(json.dumps(counts))
    else:
        show(", ".join(f"{n} {name}" for name, n in counts.items() if n) + f"; see: unstuck runs {out}")
    if done.skipped:
        why = "another process works on them, or has stopped their worker"
        say(f"unstuck: {done.skipped} of {counts['runs']} runs are left to do ({why}); the same command trains them.")
    if done.failed or done.skipped:
        raise typer.Exit(1)


def print_run_costs(specs: list[Any], as_json: bool) -> None:
    rows = [
        {"run_id": s.run_id, "steps": (c := predicted_cost(s)).steps, "hours": c.seconds / 3600, "spec": s.as_dict()}
        for s in specs
    ]
    total = sum(row["hours"] for row in rows)
    if as_json:
        print(json.dumps({"runs": rows, "hours": total}))
        return
    explain_run_costs(rows, total)
