"""`unstuck.train`: one run from Python, with a task, a model and an optimiser of your own or of ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unstuck.config.run import OptimSpec, RunSpec, TrainSpec
from unstuck.curve import Curve
from unstuck.errors import InvalidCombination
from unstuck.models._given import Given
from unstuck.models.transformer import Transformer
from unstuck.runner.execute import execute
from unstuck.store.store import Store
from unstuck.tasks.task import Task
from unstuck.training.loop import Run, RunResult

Optimizer = Callable[[Any], torch.optim.Optimizer]  # from parameters


def train(
    task: Task,
    model: Any = None,
    *,
    optim: OptimSpec | dict[str, Any] | Optimizer | None = None,
    train: TrainSpec | dict[str, Any] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
) -> RunResult:
    """Train `model` (the paper's Transformer unless told) on `task` until it emerges; with `out`, in that run
    store.

    `model` is a class with `build(task, rng)`, or simply a `torch.nn.Module`, of which a copy is trained. `optim` is a
    specification, or a function from parameters to a `torch.optim.Optimizer` (then without a store: a run there is
    known by its settings).

    Examples:
        >>> from unstuck.tasks.single_location import SingleLocation
        >>> result = train(SingleLocation(T=8, d=2), Transformer(width=32, heads=2), train={"max_steps": 10})
        >>> result.status, result.steps
        ('censored', 10)
        >>> linear = nn.Sequential(nn.Flatten(), nn.Linear(8 * 3, 2))
        >>> sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
        >>> train(SingleLocation(T=8, d=2), linear, optim=sgd, train={"max_steps": 5}).steps
        5
    """
    if callable(optim):
        if out is not None:
            raise InvalidCombination(
                "an optimiser given as a function has no settings to store a run by; leave `out` away"
            )
        spec = run_spec(task, model, train=train, seed=seed)
        return Run(spec, optimizer=lambda module: optim(module.parameters())).advance()
    spec = run_spec(task, model, optim=optim, train=train, seed=seed)
    if out is None:
        return Run(spec).advance()
    done = execute(spec, Store(out))
    if done is None:
        raise InvalidCombination(f"another process is at this run ({spec.run_id} in {out})")
    curve = Store(out).run(spec.run_id).curve() or Curve.from_rows([])
    if len(curve):  # asked for longer at another time, it has gone on
        curve = curve.truncate(max(done.result.steps, curve.steps[0]))
    found = {"watched": []} | done.result.model_dump(include=set(RunResult.__dataclass_fields__))
    return RunResult(**found, curve=curve)


def run_spec(
    task: Task,
    model: Any = None,
    *,
    optim: OptimSpec | dict[str, Any] | None = None,
    train: TrainSpec | dict[str, Any] | None = None,
    seed: int = 0,
) -> RunSpec:
    """The specification of such a run, for a sweep of your own."""
    model = Transformer() if model is None else Given.of(model) if isinstance(model, nn.Module) else model
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
