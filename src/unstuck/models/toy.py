"""The toy model of Eq. 2: one attention layer whose scores are parameters."""

from typing import ClassVar

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unstuck.errors import InvalidCombination
from unstuck.tasks.single_location import SingleLocation
from unstuck.tasks.task import Task


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Toy:
    """The toy model for single-location regression at a fixed position; it has no settings."""

    version: ClassVar[int] = 1  # raised when what a run computes changes

    def build(self, task: Task, rng: torch.Generator) -> "ToyAttention":
        if not isinstance(task, SingleLocation) or task.position == "random" or task.feature:
            raise InvalidCombination(
                "model.name = toy attends to positions, not tokens: it needs regression with task.position=last "
                "(or fixed) and task.feature=false"
            )
        return ToyAttention(task.T, task.d)


class ToyAttention(nn.Module):
    """y = W sum_t softmax(a)_t x_t, with a in R^T and W in R^{d x d}; both start at zero."""

    def __init__(self, T: int, d: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(T))
        self.W = nn.Parameter(torch.zeros(d, d))

    def forward(self, tokens: Tensor) -> Tensor:  # (n, T, d) -> (n, d)
        return torch.einsum("t,ntd->nd", self.a.softmax(0), tokens) @ self.W.T

    def observe(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The output, and the attention of its one layer and head, (n, 1, T)."""
        return self(tokens), [self.a.softmax(0).expand(len(tokens), 1, -1)]


def population_loss(a: Tensor, W: Tensor, target: Tensor, B: int = 1) -> Tensor:
    """The expected loss over all sequences without cross-sample repetition (A.2); leading dimensions are a batch."""
    s = a.softmax(-1)
    T, d = s.shape[-1], W.shape[-1]
    relevant = s[..., T - B :].sum(-1)[..., None, None]
    noise = s[..., : T - B].square().sum(-1) * W.square().sum((-2, -1))
    return 0.5 * (noise + (relevant * W - target).square().sum((-2, -1))) / d
