"""`unstuck.train`: one run from Python, with a task, a model and an optimiser of your own or of ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from unstuck.config.load import check
from unstuck.config.run import OptimSpec, RunSpec, TrainSpec
from unstuck.curve import Curve
from unstuck.errors import BadInput, InvalidCombination
from unstuck.models._given import Given
from unstuck.models.transformer import Transformer
from unstuck.runner.execute import execute
from unstuck.scalars import whole
from unstuck.store.store import Store
from unstuck.tasks.task import Task
from unstuck.training.loop import Run
from unstuck.training.result import RunResult
from unstuck.training.trial import try_out

Optimizer = Callable[[Any], torch.optim.Optimizer]  # from parameters
S = TypeVar("S")


def train(
    task: Task,
    model: Any = None,
    *,
    optim: OptimSpec | dict[str, Any] | Optimizer | None = None,
    train: TrainSpec | dict[str, Any] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
) -> RunResult:
    """Train `model` (by default the paper's Transformer) on `task` until it emerges; with `out`, in that run
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
        try_out(spec)
        return Run(spec, optimizer=lambda module: optim(module.parameters())).advance()
    spec = run_spec(task, model, optim=optim, train=train, seed=seed)
    if out is None:
        try_out(spec)
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
    if not isinstance(task, Task):
        raise BadInput("task", task, "an instance of a Task, such as SingleLocation(T=16) of unstuck.tasks")
    model = Transformer() if model is None else Given.of(model) if isinstance(model, nn.Module) else model
    if isinstance(model, type) or not hasattr(model, "build"):
        raise BadInput("model", model, "a torch.nn.Module, or an instance of a class with build(task, rng)")
    whole("seed", seed, 0, 2**32 - 1, "a whole number from 0 to 4294967295")
    return RunSpec(
        task_name=_name(task),
        task=task,
        model_name=_name(model),
        model=model,
        optim=_section(OptimSpec, optim, "optim"),
        train=_section(TrainSpec, train, "train"),
        seed=seed,
    )


def _section(kind: type[S], given: S | dict[str, Any] | None, name: str) -> S:
    """The settings of a section, checked as those of a file are."""
    if isinstance(given, kind):
        return given
    if given is not None and not isinstance(given, dict):
        raise BadInput(name, given, f"a dict of settings, or of the type {kind.__name__}")
    settings: S = check(kind, given or {}, name)
    return settings


def _name(value: Any) -> str:
    return (
        type(value).__module__.rpartition(".")[2]
        if type(value).__module__.startswith("unstuck.")
        else type(value).__name__
    )
