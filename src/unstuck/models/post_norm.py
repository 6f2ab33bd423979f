"""The full Transformer of paper 2: one block, normalised after each part, with dropout and learned positions.

Queries, the output map, the perceptron and both normalisations are computed at scored positions only. Keys and values
are not made: with a query q the scores are x_s · (K q), and the output (Σ_s a_s x_s) V. That is exact, and less work
where fewer positions are scored than seen; a window of restricted context has only one.
"""

import math
from typing import Annotated, ClassVar

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.errors import Impossible
from unstuck.tasks.task import Task, rows_of

from ._scored import ScoredModule, later_positions, scored_positions
from .transformer import Linear, _uniform

PUBLISHED_POSITIONS = 50  # rows of the paper's table of positions, however many a task needs


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class PostNorm:
    """Sizes of the model; `build` makes the module."""

    version: ClassVar[int] = 2  # raised when what a run computes changes

    layers: Annotated[int, Field(ge=1, le=64)] = 1
    heads: Annotated[int, Field(ge=1, le=1024)] = 3
    width: Annotated[int, Field(ge=1, le=65_536)] = 255
    mlp: Annotated[int, Field(ge=1, le=65_536)] = 64  # width of the perceptron
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    context: Annotated[int, Field(ge=0, le=65_536)] = 0  # tokens of a window; 0 means no windows, the whole sequence

    def build(self, task: Task, rng: torch.Generator) -> "PostNormModule":
        T, scored = scored_positions(task, "post_norm", self.context)
        if self.width % self.heads:
            raise Impossible(f"model.width is {self.width}, but must be a multiple of model.heads = {self.heads}")
        return PostNormModule(self, task.inputs, T, scored, rng)


class Block(nn.Module):
    def __init__(self, c: PostNorm, rng: torch.Generator) -> None:
        super().__init__()
        self.c = c
        self.query, self.key, self.value, self.out = (_xavier(c.width, c.width, rng) for _ in range(4))  # no biases
        self.up, self.down = Linear(c.width, c.mlp, rng, "xavier"), Linear(c.mlp, c.width, rng, "xavier")
        self.norm1, self.norm2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)

    def forward(self, x: Tensor, hidden: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """The last `rows` positions after the block, (n, rows, width), and their attention, (n, heads, rows, T)."""
        last = x[:, x.shape[1] - rows :]
        said, maps = [], []
        for q, K, V in zip(*(self._heads(w) for w in (last @ self.query, self.key, self.value)), strict=True):
            scores = q @ K.mT @ x.mT / math.sqrt(K.shape[1])  # (n, rows, T)
            weights = scores.masked_fill(hidden[-rows:], -math.inf).softmax(-1)
            said.append(self._dropout(weights) @ x @ V)
            maps.append(weights)
        x = self.norm1(last + self._dropout(torch.cat(said, -1) @ self.out))
        return self.norm2(x + self._dropout(self.down(F.relu(self.up(x))))), torch.stack(maps, 1)

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.chunk(self.c.heads, -1)

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.c.dropout, self.training)


class PostNormModule(ScoredModule):
    """(n, T) indices -> (n, scored, vocabulary) logits of the tokens that follow the last `scored` positions."""

    def __init__(self, c: PostNorm, vocabulary: int, T: int, scored: int, rng: torch.Generator) -> None:
        super().__init__(T, scored, c.context)
        self.c = c
        self.encoder = _orthogonal(vocabulary, c.width, rng)  # of one-hot tokens, by index
        bound = math.sqrt(6 / (max(PUBLISHED_POSITIONS, self.T) + c.width))
        self.positions = nn.Parameter(_uniform((self.T, c.width), bound, rng))
        self.layers = nn.ModuleList(Block(c, rng) for _ in range(c.layers))
        self.decoder = _orthogonal(c.width, vocabulary, rng)
        self.register_buffer("hidden", later_positions(self.T), persistent=False)

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = F.dropout(rows_of(tokens, self.encoder) + self.positions, self.c.dropout, self.training)
        maps = []
        for i, block in enumerate(self.layers):
            rows = self.scored if i == len(self.layers) - 1 else self.T
            x, weights = block(x, self.hidden, rows)
            maps.append(weights)
        return x @ self.decoder, maps


def _xavier(rows: int, columns: int, rng: torch.Generator) -> nn.Parameter:
    return nn.Parameter(_uniform((rows, columns), math.sqrt(6 / (rows + columns)), rng))


def _orthogonal(rows: int, columns: int, rng: torch.Generator) -> nn.Parameter:
    """Orthonormal rows, or, where there are more of them, columns; uniform over all such matrices."""
    Q, R = torch.linalg.qr(torch.randn(max(rows, columns), min(rows, columns), generator=rng))
    Q = Q * R.diagonal().sign()  # without these signs of a QR decomposition it would not be uniform
    return nn.Parameter((Q if rows >= columns else Q.T).contiguous())
