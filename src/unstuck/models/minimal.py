"""The minimal multi-head model of paper 2: attention heads and nothing else.

A token enters as one-hot token beside one-hot position, x_s in R^D with D = vocabulary + positions. Head k scores
x_t W_k x_s / sqrt(D) over s <= t, and its output is V_k x_s, averaged by attention; heads are summed, and the first
coordinates are the logits. No perceptron, normalisation, skip, dropout or output map.

One-hot vectors select: x_t W is a sum of two rows of W, and its product with x_s picks two of its entries. Only scored
positions are computed, and only the rows of V that are read out.
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.tasks.task import Task

from .scored import ScoredModule, hidden_positions, scored_positions

Scale = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Minimal:
    """Settings of the minimal model; `build` makes the module. A query scale of exactly 0 never specialises."""

    heads: Annotated[int, Field(ge=1, le=1024)] = 3
    layers: Literal[1, 2] = 1
    query: Literal["xavier"] | Scale = "xavier"  # start of the queries: Xavier, or uniform within plus or minus this
    value: Literal["xavier"] | Scale = "xavier"  # start of the values
    context: Annotated[int, Field(ge=0, le=65_536)] = 0  # tokens that a position sees, itself one of them; 0 means all

    def build(self, task: Task, rng: torch.Generator) -> "MinimalModule":
        T, scored = scored_positions(task, "minimal")
        return MinimalModule(self, task.inputs, T, scored, rng)


class MinimalModule(ScoredModule):
    """(n, T) indices -> (n, scored, vocabulary) logits of the tokens that follow the last `scored` positions."""

    def __init__(self, c: Minimal, vocabulary: int, T: int, scored: int, rng: torch.Generator) -> None:
        super().__init__()
        self.c, self.vocabulary, self.T, self.scored = c, vocabulary, T, scored
        self.width = vocabulary + T
        shape = (c.heads, self.width, self.width)
        self.queries = nn.ParameterList(_start(shape, c.query, rng) for _ in range(c.layers))
        # The last layer is read at the first coordinates only; a layer before it needs all of them.
        whole = [_start(shape, c.value, rng) for _ in range(c.layers)]
        whole[-1] = nn.Parameter(whole[-1][:, :, :vocabulary].detach().clone())
        self.values = nn.ParameterList(whole)
        self.register_buffer("hidden", hidden_positions(T, c.context), persistent=False)

    def value_matrices(self) -> Tensor:
        """What each head of the last layer says of a token, (heads, vocabulary out, vocabulary in)."""
        return self.values[-1][:, : self.vocabulary, : self.vocabulary].mT

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        if self.c.layers == 1:
            weights = self._attention_on_tokens(tokens, self.T - self.scored)
            return self._values_of_tokens(tokens, weights, self.values[0]), [weights]
        first = self._attention_on_tokens(tokens, 0)
        x = self._values_of_tokens(tokens, first, self.values[0])  # (n, T, width)
        q = torch.einsum("ntw,hwv->nhtv", x[:, -self.scored :], self.queries[1])
        second = self._softmax(q @ x[:, None].mT, self.T - self.scored)
        y = torch.einsum("nhts,nsw,hwd->ntd", second, x, self.values[1])
        return y, [first, second]

    def _attention_on_tokens(self, tokens: Tensor, start: int) -> Tensor:  # (n, heads, T - start, T)
        n, T = tokens.shape
        W = self.queries[0].transpose(0, 1).flatten(1)  # (width, heads width): a row is what a one-hot entry selects
        rows = F.embedding(tokens[:, start:], W) + W[self.vocabulary + start :]  # (n, T - start, heads width)
        q = rows.view(n, T - start, self.c.heads, self.width)
        on_tokens = q[..., : self.vocabulary].gather(3, tokens[:, None, None].expand(-1, T - start, self.c.heads, -1))
        return self._softmax((on_tokens + q[..., self.vocabulary :]).transpose(1, 2), start)

    def _softmax(self, scores: Tensor, start: int) -> Tensor:
        hidden: Tensor = self.hidden[start:]  # type: ignore[index]
        return (scores / math.sqrt(self.width)).masked_fill(hidden, -math.inf).softmax(-1)

    def _values_of_tokens(self, tokens: Tensor, weights: Tensor, V: Tensor) -> Tensor:  # (n, rows, outputs)
        heads, _, out = V.shape
        table = V.transpose(0, 1).flatten(1)  # (width, heads out)
        values = F.embedding(tokens, table) + table[self.vocabulary :]  # (n, T, heads out)
        values = values.view(*tokens.shape, heads, out).permute(0, 2, 1, 3).flatten(1, 2)  # (n, heads T, out)
        return weights.permute(0, 2, 1, 3).flatten(2) @ values  # the sum over heads and positions in one product


def _start(shape: tuple[int, ...], scale: str | float, rng: torch.Generator) -> nn.Parameter:
    bound = math.sqrt(6 / (shape[-1] + shape[-2])) if isinstance(scale, str) else scale
    return nn.Parameter((torch.rand(shape, generator=rng) * 2 - 1) * bound)
