"""`unstuck.train`: one run from Python, with a task and a model of your own or of ours."""

from pathlib import Path
from typing import Any

from unstuck.models.transformer import Transformer
from unstuck.runs.execute import execute
from unstuck.runs.store import Store
from unstuck.spec.run import OptimSpec, RunSpec, TrainSpec
from unstuck.tasks.task import Task
from unstuck.training.loop import Run, RunResult


def train(
    task: Task,
    model: Any = None,
    *,
    optim: OptimSpec | dict[str, Any] | None = None,
    train: TrainSpec | dict[str, Any] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
) -> RunResult:
    """Train `model` (the paper's Transformer unless told) on `task` until it emerges; with `out`, in that run
    store.

    Examples:
        >>> from unstuck.tasks.single_location import SingleLocation
        >>> result = train(SingleLocation(T=8, d=2), Transformer(width=32, heads=2), train={"max_steps": 10})
        >>> result.status, result.steps
        ('censored', 10)
    """
    spec = run_spec(task, model, optim=optim, train=train, seed=seed)
    if out is None:
        return Run(spec).advance()
    result = execute(spec, Store(out))
    curve = Store(out).run(spec.run_id).curve()
    keep = set(RunResult.__dataclass_fields__)
    return RunResult(**{k: v for k, v in result.items() if k in keep}, curve=curve)


def run_spec(
    task: Task,
    model: Any = None,
    *,
    optim: OptimSpec | dict[str, Any] | None = None,
    train: TrainSpec | dict[str, Any] | None = None,
    seed: int = 0,
) -> RunSpec:
    """The specification of such a run, for a sweep of your own."""
    model = Transformer() if model is None else model
    return RunSpec(
        task_name=_name(task),
        task=task,
        model_name=_name(model),
        model=model,
        optim=OptimSpec(**optim) if isinstance(optim, dict) else optim or OptimSpec(),
        train=TrainSpec(**train) if isinstance(train, dict) else train or TrainSpec(),
        seed=seed,
    )


def _name(value: Any) -> str:
    return (
        type(value).__module__.rpartition(".")[2]
        if type(value).__module__.startswith("unstuck.")
        else type(value).__name__
    )
