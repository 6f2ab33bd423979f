"""Try a task or a model of somebody's own on a few sequences before it is trained: what does not fit is named."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unstuck.config.load import line_of
from unstuck.config.run import RunSpec
from unstuck.errors import BadInput, InvalidCombination, brief
from unstuck.models._given import Given
from unstuck.scalars import is_whole
from unstuck.tasks.task import Batch, Task

from .optimizers import optimizer_of
from .seeds import stream

SEQUENCES = (2, 3)  # of the batches that are tried: one size alone may fit by chance


def try_out(spec: RunSpec) -> None:
    """Refuse a task, a model or an optimiser of somebody's own that a run would fail with, by its file and its field.
    Those that come with the package are not tried. PyTorch's random state stays as it is."""
    task, model, optimizer = _is_foreign(spec.task), _is_foreign(spec.model), spec.optim.name.endswith(".py")
    if not (task or model or optimizer):
        return
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        batches = _Trial(spec.task, spec.task_name).batches(spec.seed) if task or model else []
        trial = _Trial(spec.model, spec.model_name)
        module = trial.call("build", spec.task, stream(spec.seed, "init"))
        if not isinstance(module, torch.nn.Module):
            raise BadInput(f"what {trial.field('build')} returns", module, "a torch.nn.Module")
        if optimizer:
            _Trial(spec.optim, spec.optim.name).guarded("the optimiser", lambda: optimizer_of(spec, module))
        for batch in batches:
            outputs = trial.guarded(f"the module of {trial.field('build')}", partial(module.eval(), batch.inputs))
            _Trial(spec.task, spec.task_name).losses(outputs, batch)


def try_any(specs: Sequence[RunSpec]) -> None:
    """Refuse a sweep none of whose runs would work; one that fails must not stop the others."""
    refusals = []
    for spec in specs:
        try:
            return try_out(spec)
        except BadInput as e:
            refusals.append(e)
    if refusals:
        raise refusals[0]


@contextmanager
def named_files(spec: RunSpec) -> Iterator[None]:
    """An error in a user's file, later in a run: one sentence with the file and the line."""
    try:
        yield
    except (BadInput, OSError, MemoryError):
        raise
    except (Exception, SystemExit) as e:
        for name in (spec.task_name, spec.model_name, spec.optim.name):
            if name.endswith(".py") and (line := line_of(e, Path(name))):
                raise InvalidCombination(f"{name} failed{line}: {brief(e)}") from e
        raise


def _is_foreign(part: Any) -> bool:
    return isinstance(part, Given) or not type(part).__module__.startswith("unstuck.")


class _Trial:
    """A task or a model, and the file that it comes from, if any."""

    def __init__(self, part: Any, name: str) -> None:
        self.part, self.name = part, name

    def field(self, member: str) -> str:
        """A member as a user knows it: by its class and its file."""
        file = f" in {self.name}" if self.name.endswith(".py") else ""
        return f"{type(self.part).__name__}.{member}{file}"

    def guarded(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (BadInput, OSError, MemoryError):
            raise
        except (Exception, SystemExit) as e:
            if "can't allocate memory" in str(e):
                raise
            if isinstance(e, NotImplementedError):
                raise InvalidCombination(f"{what} is missing") from e
            raise InvalidCombination(f"{what} failed{line_of(e, Path(self.name))}: {brief(e)}") from e

    def call(self, method: str, *arguments: Any) -> Any:
        return self.guarded(self.field(method), lambda: getattr(self.part, method)(*arguments))

    def batches(self, seed: int) -> list[Batch]:
        """Batches of the task, if they have the types and shapes that `Batch` names: to test on and to train on."""
        features = self._size("inputs")
        self._size("outputs")
        world = self.call("world", stream(seed, "trial of the world"))
        kind = type(self.part)
        test = "sample" if kind.held_out is Task.held_out else "held_out"
        train = "sample" if kind.batch is Task.batch else "batch"
        tried = [(method, n) for method in dict.fromkeys((test, train)) for n in SEQUENCES]
        return [self._batch(method, n, stream(seed, "trial"), world, features) for method, n in tried]

    def _batch(self, method: str, n: int, rng: torch.Generator, world: Any, features: int) -> Batch:
        step = (1,) if method == "batch" else ()
        drawn = self.call(method, *step, n, rng, world)
        field = self.field(method)
        if not isinstance(drawn, tuple) or not 3 <= len(drawn) <= len(Batch._fields):
            what = f"{len(drawn)} values" if isinstance(drawn, tuple) else drawn
            raise BadInput(f"what {field} returns", what, f"a Batch: {', '.join(Batch._fields[:3])}")
        for name, value in zip(Batch._fields, drawn, strict=False):
            if not isinstance(value, Tensor):
                raise BadInput(f"{name} of {field}", value, "a tensor")
        batch = Batch(*drawn)
        self._check_shapes(batch, field, features, n)
        return batch

    def _size(self, name: str) -> int:
        size = self.guarded(self.field(name), lambda: getattr(self.part, name))
        if not is_whole(size) or size < 1:
            raise BadInput(self.field(name), size, "a whole number, at least 1")
        return int(size)

    def _check_shapes(self, batch: Batch, field: str, features: int, n: int) -> None:
        inputs = batch.inputs
        if self.part.discrete:
            if inputs.dim() < 2 or len(inputs) != n or inputs.is_floating_point():
                raise BadInput(f"inputs of {field}", _shape(inputs), f"token indices in ({n}, T)")
            if not 0 <= int(inputs.min()) <= int(inputs.max()) < features:
                raise BadInput(f"the largest token of {field}", int(inputs.max()), f"below its inputs, {features}")
        elif inputs.dim() != 3 or (len(inputs), inputs.shape[2]) != (n, features) or not inputs.is_floating_point():
            allowed = f"numbers in ({n}, T, {features}), since {self.field('inputs')} is {features}"
            raise BadInput(f"inputs of {field}", _shape(inputs), allowed)
        if batch.relevant.shape != inputs.shape[:2]:
            raise BadInput(f"relevant of {field}", _shape(batch.relevant), f"in {tuple(inputs.shape[:2])}")
        if batch.targets.dim() == 0 or len(batch.targets) != n:
            raise BadInput(f"targets of {field}", _shape(batch.targets), f"of {n} sequences")

    def losses(self, outputs: Any, batch: Batch) -> None:
        """Does the task take what the model gives?"""
        plain = type(self.part).losses is Task.losses
        if plain and isinstance(outputs, Tensor) and outputs.shape != batch.targets.shape:
            size = f"{self.field('outputs')} is {self.part.outputs}"
            allowed = f"in {tuple(outputs.shape)} like the model's outputs, since {size}"
            raise BadInput(f"targets of {self.field('sample')}", _shape(batch.targets), allowed)
        losses, n = self.call("losses", outputs, batch.targets), len(batch.inputs)
        if not isinstance(losses, Tensor) or losses.shape != (n,):
            what = _shape(losses) if isinstance(losses, Tensor) else losses
            raise BadInput(f"what {self.field('losses')} returns", what, f"a loss of each sequence, in ({n},)")
        measures = self.call("measures", outputs, batch)
        needed = {"loss", self.part.decides} - {"copy_advantage"}
        if not isinstance(measures, dict) or not needed <= measures.keys():
            allowed = f"a dict with {' and '.join(sorted(needed))}"
            raise BadInput(f"what {self.field('measures')} returns", measures, allowed)


def _shape(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} in {tuple(value.shape)}"
