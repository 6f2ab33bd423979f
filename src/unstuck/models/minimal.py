"""The minimal multi-head model of paper 2: attention heads and nothing else.

The input x_s in R^D is a one-hot token followed by a one-hot position, D = vocabulary + positions. The score of head k
is x_t W_k x_s / sqrt(D) for s <= t; its output is the attention-weighted mean of V_k x_s. Heads are summed, and the
first coordinates are the logits. There is no perceptron, normalisation, skip, dropout or output map. A token that is a
vector enters unchanged.

Products with one-hot vectors are computed by lookup: x_t W is a sum of two rows of W, and its product with x_s is a sum
of two of its entries. Where it is less work, all such sums are tabulated once. Only scored positions are computed, and
only the rows of V that are read. A window of restricted context has one query; its output is V_k Σ_s a_s x_s, where the
sum over one-hot vectors is attention summed by token, followed by attention itself.
"""

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.tasks.task import Task, rows_of

from ._scored import ScoredModule, scored_positions

Scale = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Minimal:
    """Settings of the minimal model; `build` makes the module. With a query scale of exactly 0 no head specialises."""

    version: ClassVar[int] = 1  # raised when what a run computes changes

    heads: Annotated[int, Field(ge=1, le=1024)] = 3  # of each layer
    layers: Literal[1, 2] = 1  # of attention
    query: Literal["xavier"] | Scale = "xavier"  # initial queries: Xavier, or uniform in ± this
    value: Literal["xavier"] | Scale = "xavier"  # initial values
    context: Annotated[int, Field(ge=0, le=65_536)] = 0  # tokens of a window; 0: the whole sequence

    def build(self, task: Task, rng: torch.Generator) -> "MinimalModule":
        T, scored = scored_positions(task, "minimal", self.context)
        return MinimalModule(self, task.inputs, T, scored, rng)


class MinimalModule(ScoredModule):
    """(n, T) indices -> (n, scored, vocabulary) logits of the tokens that follow the last `scored` positions."""

    def __init__(self, c: Minimal, vocabulary: int, T: int, scored: int, rng: torch.Generator) -> None:
        super().__init__(T, scored, c.context)
        self.c, self.vocabulary = c, vocabulary
        self.width = vocabulary + self.T
        shape = (c.heads, self.width, self.width)
        self.queries = nn.ParameterList(_start(shape, c.query, rng) for _ in range(c.layers))
        # Of the last layer only the first coordinates are read; an earlier layer needs all of them.
        whole = [_start(shape, c.value, rng) for _ in range(c.layers)]
        whole[-1] = nn.Parameter(whole[-1][:, :, :vocabulary].detach().clone())
        self.values = nn.ParameterList(whole)
        self.register_buffer("hidden", torch.ones(self.T, self.T, dtype=torch.bool).triu(1), persistent=False)  # ahead

    def value_matrices(self) -> Tensor:
        """Output of each head of the last layer for a token, (heads, vocabulary out, vocabulary in)."""
        return self.values[-1][:, : self.vocabulary, : self.vocabulary].mT

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        if self.c.layers == 1:
            weights = self._attention_on_tokens(tokens, self.T - self.scored)
            values = self._values_in_windows if self.context else self._values_of_tokens
            return values(tokens, weights, self.values[0]), [weights]
        first = self._attention_on_tokens(tokens, 0)
        x = self._values_of_tokens(tokens, first, self.values[0])  # (n, T, width)
        q = torch.einsum("ntw,hwv->nhtv", x[:, -self.scored :], self.queries[1]) / math.sqrt(self.width)
        second = (q @ x[:, None].mT).masked_fill(self._hidden(self.T - self.scored), -math.inf).softmax(-1)
        y = torch.einsum("nhts,nsw,hwd->ntd", second, x, self.values[1])
        return y, [first, second]

    def _hidden(self, start: int) -> Tensor:
        return self.hidden[start:]  # type: ignore[index]

    def _attention_on_tokens(self, tokens: Tensor, start: int) -> Tensor:  # (n, heads, T - start, T)
        """Attention of the first layer from the positions after `start`."""
        n, T = tokens.shape[:2]
        V, rows, heads = self.vocabulary, T - start, self.c.heads
        W = self.queries[0] / math.sqrt(self.width)
        if not tokens.is_floating_point() and n >= V**2:
            # Few tokens, many sequences: tabulate the scores of all pairs of positions and tokens.
            q = W[:, V + start :, None] + W[:, None, :V]  # (heads, rows, V, width)
            table = q[:, :, :, None, :V] + q[:, :, :, V:, None]  # (heads, rows, V, T, V)
            table = table.masked_fill(self._hidden(start)[:, None, :, None], -math.inf).flatten(1)
            here, there = _places(tokens[:, start:], V), _places(tokens, V)
            index = (here[:, :, None] * (T * V) + there[:, None]).view(1, -1).expand(heads, -1)
            return table.gather(1, index).view(heads, n, rows, T).softmax(-1).transpose(0, 1)
        W = W.transpose(0, 1).flatten(1)  # (width, heads width): a one-hot entry selects a row
        q = (rows_of(tokens[:, start:], W[:V]) + W[V + start :]).view(n, rows, heads, -1)
        if tokens.is_floating_point():
            on_tokens = q[..., :V] @ tokens[:, None].mT
        else:
            on_tokens = q[..., :V].gather(3, tokens[:, None, None].expand(-1, rows, heads, -1))
        scores = (on_tokens + q[..., V:]).transpose(1, 2)
        return scores.masked_fill(self._hidden(start), -math.inf).softmax(-1)

    def _values_of_tokens(self, tokens: Tensor, weights: Tensor, V: Tensor) -> Tensor:  # (n, rows, outputs)
        heads, _, out = V.shape
        words, places = V[:, None, : self.vocabulary], V[:, self.vocabulary :, None]
        if tokens.is_floating_point():
            values = tokens[:, None] @ V[:, : self.vocabulary] + V[:, self.vocabulary :]  # (n, heads, T, out)
        else:  # a table of each head's output for a token at a position
            table = (words + places).view(-1, out)  # (heads T vocabulary, out)
            by_head = torch.arange(heads, device=tokens.device)[:, None] * (self.T * self.vocabulary)
            values = F.embedding(by_head + _places(tokens, self.vocabulary)[:, None], table)
        # One product for each head, not one for all, so that equal heads stay equal to the last bit.
        said = [w @ v for w, v in zip(weights.unbind(1), values.unbind(1), strict=True)]
        return torch.stack(said).sum(0)

    def _values_in_windows(self, tokens: Tensor, weights: Tensor, V: Tensor) -> Tensor:  # (n, 1, outputs)
        """The same for the last position only."""
        weights = weights[:, :, -1]  # (n, heads, context)
        if tokens.is_floating_point():
            by_token = weights @ tokens
        else:
            by_token = weights.new_zeros(*weights.shape[:2], self.vocabulary)
            by_token = by_token.scatter_add(2, tokens[:, None].expand_as(weights), weights)
        seen = torch.cat([by_token, weights], 2)  # (n, heads, width)
        said = [x @ v for x, v in zip(seen.unbind(1), V, strict=True)]
        return torch.stack(said).sum(0)[:, None]


def _places(tokens: Tensor, vocabulary: int) -> Tensor:
    """One index for a position and its token, (n, positions)."""
    return torch.arange(tokens.shape[1], device=tokens.device) * vocabulary + tokens


def _start(shape: tuple[int, ...], scale: str | float, rng: torch.Generator) -> nn.Parameter:
    bound = math.sqrt(6 / (shape[-1] + shape[-2])) if isinstance(scale, str) else scale
    return nn.Parameter((torch.rand(shape, generator=rng) * 2 - 1) * bound)
