"""The full Transformer of paper 2: one block, normalised after each part, with dropout and learned positions.

Queries, the output map, the perceptron and both normalisations are computed at scored positions only. With `context`
the model sees only so many of the last tokens at every position: the restricted-context models of paper 2.
"""

import math
from typing import Annotated

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.errors import Impossible
from unstuck.tasks.task import Task, rows_of

from ._scored import ScoredModule, hidden_positions, scored_positions
from .transformer import Linear, _uniform


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class PostNorm:
    """Sizes of the model; `build` makes the module."""

    layers: Annotated[int, Field(ge=1, le=64)] = 1
    heads: Annotated[int, Field(ge=1, le=1024)] = 3
    width: Annotated[int, Field(ge=1, le=65_536)] = 255
    mlp: Annotated[int, Field(ge=1, le=65_536)] = 64  # width of the perceptron
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    context: Annotated[int, Field(ge=0, le=65_536)] = 0  # tokens that a position sees, itself one of them; 0 means all

    def build(self, task: Task, rng: torch.Generator) -> "PostNormModule":
        T, scored = scored_positions(task, "post_norm")
        if self.width % self.heads:
            raise Impossible(f"model.width is {self.width}, but must be a multiple of model.heads = {self.heads}")
        return PostNormModule(self, task.inputs, T, scored, rng)


class Block(nn.Module):
    def __init__(self, c: PostNorm, rng: torch.Generator) -> None:
        super().__init__()
        self.c = c
        self.qkv = nn.Parameter(_uniform((3, c.width, c.width), math.sqrt(6 / (2 * c.width)), rng))  # no biases
        self.out = nn.Parameter(_uniform((c.width, c.width), 1 / math.sqrt(c.width), rng))
        self.up, self.down = Linear(c.width, c.mlp, rng, "default"), Linear(c.mlp, c.width, rng, "default")
        self.norm1, self.norm2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)

    def forward(self, x: Tensor, hidden: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """The last `rows` positions after the block, (n, rows, width), and their attention, (n, heads, rows, T)."""
        n, T, _ = x.shape
        last = x[:, T - rows :]
        q = self._heads(last @ self.qkv[0])
        k, v = self._heads(x @ self.qkv[1]), self._heads(x @ self.qkv[2])  # (n, heads, T, width / heads)
        scores = q @ k.mT / math.sqrt(k.shape[-1])
        weights = scores.masked_fill(hidden[T - rows :], -math.inf).softmax(-1)
        y = (self._dropout(weights) @ v).transpose(1, 2).reshape(n, rows, -1) @ self.out
        x = self.norm1(last + self._dropout(y))
        return self.norm2(x + self._dropout(self.down(F.relu(self.up(x))))), weights

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.c.heads, -1)).transpose(1, 2)

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.c.dropout, self.training)


class PostNormModule(ScoredModule):
    """(n, T) indices -> (n, scored, vocabulary) logits of the tokens that follow the last `scored` positions."""

    def __init__(self, c: PostNorm, vocabulary: int, T: int, scored: int, rng: torch.Generator) -> None:
        super().__init__()
        self.c, self.T, self.scored = c, T, scored
        encoder = Linear(vocabulary, c.width, rng, "default")  # of one-hot tokens, by index
        self.encoder, self.encoder_bias = nn.Parameter(encoder.weight.detach().T.contiguous()), encoder.bias
        self.positions = nn.Parameter(torch.randn(T, c.width, generator=rng) * 0.02)
        self.layers = nn.ModuleList(Block(c, rng) for _ in range(c.layers))
        self.decoder = Linear(c.width, vocabulary, rng, "default")
        self.register_buffer("hidden", hidden_positions(T, c.context, c.layers), persistent=False)

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = rows_of(tokens, self.encoder) + self.encoder_bias
        x = F.dropout(x + self.positions, self.c.dropout, self.training)
        maps = []
        for i, block in enumerate(self.layers):
            rows = self.scored if i == len(self.layers) - 1 else self.T
            x, weights = block(x, self.hidden, rows)
            maps.append(weights)
        return self.decoder(x), maps
