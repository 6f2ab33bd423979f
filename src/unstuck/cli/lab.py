"""`unstuck train`, `unstuck sweep` and `unstuck runs`: the laboratory."""

import json
import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from unstuck.errors import BadInput
from unstuck.runner.interrupts import interrupts
from unstuck.runner.memory import keep_freed_memory

from .common import Json, app, real, say, warnings_as_sentences, whole, work_bar

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as task.T=32 seed=1.", show_default=False)
]


def _shipped(incomplete: str) -> list[str]:
    """For the shell's completion."""
    from unstuck.config.load import shipped

    return [name for name in shipped() if name.startswith(incomplete)]


Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="A shipped name (regression, recall, markov-minimal), a YAML file, or a .py with a task of yours.",
        show_default=False,
        autocompletion=_shipped,
    ),
]


@app.command()
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
    """Train one run: until it emerges, or until train.max_steps. Asked for again, it prints its stored result.

    [bold]Examples[/bold]

      unstuck train regression task.T=32 task.d=16 seed=0

      unstuck train regression task.T=16 task.d=8 optim.name=sgd optim.lr=5e-3 train.max_steps=20000

      unstuck train recall task.tokens=32 task.pairs=4 task.B=2
    """
    from unstuck.config import load_spec

    run = load_spec(spec, overrides or [])
    if dry_run:
        print_run_costs([run], as_json)
        return
    from unstuck.runner.execute import execute
    from unstuck.store.store import Store
    from unstuck.view.terminal import explain_run, live

    keep_freed_memory()
    trackers = _trackers(run, tensorboard, wandb)
    try:
        with warnings_as_sentences(), live(run) as show, interrupts(signal.SIGINT, signal.SIGTERM) as interrupted:

            def on_row(run: Any) -> None:
                for observer in (show, *trackers):
                    observer(run)

            done = execute(run, Store(out), stop=interrupted, on_row=on_row, keep=keep)
    finally:
        for tracker in trackers:
            tracker.close()
    if done is None:
        say(f"unstuck: another process is at this run ({run.run_id}).")
        raise typer.Exit(1)
    if done.result.status == "stopped":
        raise KeyboardInterrupt
    if as_json:
        print(json.dumps(done.as_dict()))
        return
    explain_run(run, done, out)


def _trackers(run: Any, tensorboard: Path | None, wandb: str | None) -> list[Any]:
    from unstuck.attach.trackers import TensorBoardTracker, WandbTracker

    trackers: list[Any] = [TensorBoardTracker(tensorboard, run)] if tensorboard else []
    return [*trackers, WandbTracker(wandb, run)] if wandb else trackers


@app.command()
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
        typer.Option("--ray", metavar="ADDRESS", help="On the Ray cluster there, or on the one around: auto."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the product of lists: task.T=16,32 task.d=8,16 is four runs. What is finished is not run again.

    [bold]Examples[/bold]

      unstuck sweep regression task.T=16,32,64 task.d=8,16,32 seed=0,1,2 --workers 2 --out runs/

      unstuck sweep regression task.T=16,32,64 seed=0,1,2 --ray auto --out /shared/runs
    """
    from unstuck.runner.sweep import expand, run_sweep

    if not isinstance(workers, int) or not 0 <= workers <= 1024:
        raise BadInput("--workers", workers, "a whole number from 0 to 1024")
    if not isinstance(checkpoint, float) or not 0 < checkpoint < 1e6:
        raise BadInput("--checkpoint", checkpoint, "a number of seconds above 0")
    specs = expand(spec, overrides or [])
    if dry_run:
        print_run_costs(specs, as_json)
        return
    from unstuck.store.store import Store

    with warnings_as_sentences(), work_bar() as progress:
        if ray is not None:
            from unstuck.runner.on_ray import run_on_ray

            done = run_on_ray(specs, Store(out), address=ray, checkpoint_seconds=checkpoint, progress=progress)
        else:
            many = workers or os.cpu_count() or 1
            done = run_sweep(specs, Store(out), workers=many, checkpoint_seconds=checkpoint, progress=progress)
    for run_id, message in done.failed.items():
        say(f"warning: run {run_id} failed: {message}")
    counts = done.as_json()
    if as_json:
        print(json.dumps(counts))
    else:
        print(", ".join(f"{n} {name}" for name, n in counts.items() if n) + f"; see: unstuck runs {out}")
    if done.failed:
        raise typer.Exit(1)


@app.command()
def runs(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run store.")] = Path("runs"),
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Show the table of runs in a store."""
    from unstuck.store.store import Store

    if not directory.is_dir():
        raise BadInput("DIR", str(directory), "a directory of runs; `unstuck train regression --out DIR` makes one")
    with warnings_as_sentences():
        table = Store(directory).table()
    if as_json:
        print(json.dumps({"runs": json.loads(table.to_json(orient="records"))}))
    elif as_csv:
        print(table.to_csv(index=False), end="")
    else:
        from unstuck.view.terminal import explain_runs

        explain_runs(table, directory)


def print_run_costs(specs: list[Any], as_json: bool) -> None:
    from unstuck.runner.cost import predicted_cost

    rows = [
        {"run_id": s.run_id, "steps": (c := predicted_cost(s)).steps, "hours": c.seconds / 3600, "spec": s.as_dict()}
        for s in specs
    ]
    total = sum(row["hours"] for row in rows)
    if as_json:
        print(json.dumps({"runs": rows, "hours": total}))
        return
    from unstuck.view.terminal import explain_run_costs

    explain_run_costs(rows, total)
