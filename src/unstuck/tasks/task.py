"""`Task`: a frozen configuration that draws batches. Subclass it, in one file, for a task of your own."""

from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, dataclass_transform

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn import functional as F

C = TypeVar("C")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[C]) -> type[C]:
    """Decorator of a task's class: fields are validated, unknown fields are refused, and instances are frozen."""
    return dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))(cls)  # type: ignore[return-value]


World = dict[str, Tensor]


def rows_of(inputs: Tensor, table: Tensor) -> Tensor:
    """Each token times a table, (n, T, columns): token indices select a row."""
    return inputs @ table if inputs.is_floating_point() else F.embedding(inputs, table)


def mean_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each sequence, (n,), in nats a token; outputs (n, T, vocabulary), targets (n, T)."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets).mean(1)


def onto(x: Tensor, device: str) -> Tensor:
    """A tensor on a device; the host does not wait for the copy. An empty one stays where it is."""
    if x.device.type == device or not x.numel():
        return x
    return x.pin_memory().to(device, non_blocking=True) if device == "cuda" else x.to(device)


def world_on(world: World, device: str) -> World:
    """A world where batches are drawn from it. Single whole numbers, such as seeds, stay on the host, which reads them
    at every step."""
    return {k: v if v.numel() == 1 and not v.is_floating_point() else v.to(device) for k, v in world.items()}


class Batch(NamedTuple):
    """n sequences: inputs, targets, and which tokens the targets depend on."""

    inputs: Tensor  # (n, T, features), or (n, T) token indices, or (n, T, k) where a position holds k of them
    targets: Tensor  # (n, outputs), or (n,) token indices, or (n, T) of them for a task that is read everywhere
    relevant: Tensor  # (n, T), True on the tokens that the target depends on
    extra: Tensor = torch.empty(0)  # (n, ...), further data for the task's `measures`


class Repeated(NamedTuple):
    """n sequences that end in random tokens, twice: nothing but the first pass tells what comes in the second."""

    tokens: Tensor  # (n, T) token indices; the last 2 period are the two passes
    period: int

    @property
    def alone(self) -> Tensor:
        """The two passes without what stands before them."""
        return self.tokens[:, -2 * self.period :]

    @property
    def backwards(self) -> Tensor:
        """The same with the second pass in reverse. Here an induction head gains nothing, and a model that merely
        prefers tokens it has seen gains as much as before."""
        first, second = self.alone.split(self.period, 1)
        return torch.cat([first, second.flip(1)], 1)


class Task:
    """What is learnt. A subclass defines its sizes and draws sequences.

    `world` is drawn once a run, from its own seed: a target matrix, a fixed position. `sample` receives it.
    """

    #: True if inputs are token indices, False if they are vectors.
    discrete: ClassVar[bool] = False
    #: True if the model predicts at every position, False if it is read at the last one.
    everywhere: ClassVar[bool] = False
    #: Sequences in the evaluation set, and how many of them an ordinary row of the curve uses.
    evaluation: ClassVar[int] = 1024
    probe: ClassVar[int] = 64
    #: Sequences in the sets that do not decide emergence: clean and training-like data.
    beside: ClassVar[int] = 64
    #: The measure whose thresholds decide emergence: a loss falls to them, the others rise to them. The copying
    #: advantage is measured on the sequences of `repeated_sequences`.
    decides: ClassVar[Literal["loss", "accuracy", "copy_advantage"]] = "loss"

    @property
    def inputs(self) -> int:
        """Features of a token, or size of the vocabulary."""
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        raise NotImplementedError

    def identity(self) -> dict[str, Any]:
        """What a run's id has in place of some of the settings: for a path, what it leads to."""
        return {}

    def prepare(self, cache: Path) -> None:
        """Before a run: what takes long and is the same for many runs may be kept in `cache`, a directory."""

    def world(self, rng: torch.Generator) -> World:
        return {}

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        raise NotImplementedError

    def batch(self, step: int, n: int, rng: torch.Generator, world: World) -> Batch:
        """The batch of one training step; a task with a fixed training set takes the next part of it."""
        return self.sample(n, rng, world)

    def steps_a_pass(self, n: int) -> int:
        """Steps of a pass over the data: the learning-rate schedule evaluates the validation loss once a pass."""
        return 3

    def held_out(self, n: int, rng: torch.Generator, world: World) -> Batch:
        """Sequences to test on."""
        return self.sample(n, rng, world)

    def repeated_sequences(self, n: int, rng: torch.Generator, world: World) -> Repeated | None:
        """n random sequences, each twice, on which induction heads are measured; None for a task without."""
        return None

    def clean(self) -> "Task":
        """The same task without repetition, for testing."""
        return self

    def primary(self) -> "Task":
        """The task whose evaluation decides emergence; by default the clean one."""
        return self.clean()

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each sequence, (n,): half the squared error."""
        return 0.5 * (outputs - targets).square().sum(-1)

    def measures(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """All measures of each sequence, (n,) each: `loss` and `accuracy` on every evaluation set, others on the set
        that decides emergence."""
        return {"loss": self.losses(outputs, batch.targets)}

    def links(self, batch: Batch) -> dict[str, Tensor]:
        """Further attention to measure: for each name a mask (n, T, T), True from one position to another."""
        return {}

    # -- comparison of two models

    def prediction(self, outputs: Tensor) -> Tensor:
        """What is kept of a model's outputs, to compare other models with."""
        return outputs

    def distance(self, theirs: Tensor, ours: Tensor) -> Tensor:
        """Distance between two predictions, one number each: half the squared difference."""
        return 0.5 * (theirs - ours).square().sum(-1)
