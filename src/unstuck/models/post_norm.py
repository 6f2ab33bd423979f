"""The full Transformer of paper 2: one block, normalised after each part, with dropout and learned positions.

Queries, the output map, the perceptron and both normalisations are computed at scored positions only. A window of
restricted context has one query q and needs no keys and values: its scores are x_s · (K q), and its output is
(Σ_s a_s x_s) V. This is exact.

Most of the time is spent in matrix products. A product with 255 columns takes twice as long as one with 256 (MKL,
measured), because its rows are not aligned to the processor's vectors. The residual stream and the square maps are
therefore padded with zeros to 256 columns, which changes no number; normalisations use the 255 columns.
"""

import math
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.errors import InvalidCombination
from unstuck.tasks._lagged import haar
from unstuck.tasks.task import Task, rows_of

from ._scored import ScoredModule, scored_positions
from .transformer import Linear, _uniform

PUBLISHED_POSITIONS = 50  # rows of the paper's table of positions, for every task
MULTIPLE = 16  # of columns: floats in a vector of the processor


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class PostNorm:
    """Sizes of the model; `build` makes the module."""

    version: ClassVar[int] = 2  # raised when what a run computes changes

    layers: Annotated[int, Field(ge=1, le=64)] = 1  # blocks of attention and perceptron
    heads: Annotated[int, Field(ge=1, le=1024)] = 3  # of each layer
    width: Annotated[int, Field(ge=1, le=65_536)] = 255  # of the residual stream
    mlp: Annotated[int, Field(ge=1, le=65_536)] = 64  # width of the perceptron
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1  # share of values that is left out in training
    #: In which updates: all, or the first of each pass over the data. The authors' public trainer does the latter: its
    #: validation after every update ends the training mode, which begins again with the next pass.
    dropout_in: Literal["all", "first of a pass"] = "all"
    context: Annotated[int, Field(ge=0, le=65_536)] = 0  # tokens of a window; 0: the whole sequence

    def build(self, task: Task, rng: torch.Generator) -> "PostNormModule":
        T, scored = scored_positions(task, "post_norm", self.context)
        if self.width % self.heads:
            raise InvalidCombination(
                f"model.width is {self.width}, but must be a multiple of model.heads = {self.heads}"
            )
        return PostNormModule(self, task.inputs, T, scored, rng)


class Block(nn.Module):
    def __init__(self, c: PostNorm, rng: torch.Generator) -> None:
        super().__init__()
        self.c, bound = c, math.sqrt(6 / (2 * c.width))  # Xavier
        self.qkv = nn.Parameter(_uniform((3, c.width, c.width), bound, rng))  # no biases
        self.out = nn.Parameter(_uniform((c.width, c.width), bound, rng))
        self.up, self.down = Linear(c.width, c.mlp, rng, "xavier"), Linear(c.mlp, c.width, rng, "xavier")
        self.norm1, self.norm2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)

    def forward(self, x: Tensor, hidden: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """The last `rows` positions after the block, (n, rows, width), and their attention, (n, heads, rows, T)."""
        x = widened(x)
        last = x[:, x.shape[1] - rows :]
        Q, K, V = widened(self.qkv, 2)
        Q = Q / math.sqrt(self.c.width / self.c.heads)
        said, weights = self._one_query(x, Q, K, V) if rows == 1 else self._queries(last, x, hidden[-rows:], Q, K, V)
        y = last + self._dropout(said @ widened(self.out, 2))
        x = self.norm1(y[..., : self.c.width])
        return self.norm2(x + self._dropout(self.down(F.relu(self.up(x))))), weights

    def _queries(
        self, last: Tensor, x: Tensor, hidden: Tensor, Q: Tensor, K: Tensor, V: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Output of the heads at the last positions, (n, rows, widened), and their attention."""
        q, kv = self._heads(last @ Q), self._heads(x @ torch.cat([K, V], 1))
        k, v = kv[: self.c.heads], kv[self.c.heads :]
        rate = self.c.dropout if self.training else 0.0
        heads = [Head.apply(*qkv, hidden, rate) for qkv in zip(q, k, v, strict=True)]  # type: ignore[no-untyped-call]
        return torch.cat([said for said, _ in heads], -1), torch.stack([A for _, A in heads], 1)

    def _one_query(self, x: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        """The same for the last position only."""
        toward = [q @ k.mT for q, k in zip(self._heads(x[:, -1] @ Q), self._heads(K), strict=True)]
        A = (torch.stack(toward, 1) @ x.mT).softmax(-1)  # (n, heads, T)
        seen = (self._dropout(A) @ x).unbind(1)
        said = [y @ v for y, v in zip(seen, self._heads(V), strict=True)]
        return torch.cat(said, -1)[:, None], A[:, :, None]

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """The columns of each head, of one padded map or of several; padding belongs to the last head."""
        size, added = self.c.width // self.c.heads, -self.c.width % MULTIPLE
        maps = x.shape[-1] // (self.c.width + added)
        return x.split(([size] * (self.c.heads - 1) + [size + added]) * maps, -1)

    def _dropout(self, x: Tensor) -> Tensor:
        return dropout(x, self.c.dropout) if self.training else x


class Head(torch.autograd.Function):
    """One head with dropout: A = softmax(q k^T + hidden); returns the output (A * mask) v and the attention A.

    The gradient is written by hand because PyTorch stores the gradient of k by columns, and joining it with those of
    the other heads would take longer than all products of a head."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        A = (q @ k.mT).add_(hidden).softmax(-1)  # (n, rows, T)
        mask = dropout_mask(A, rate)
        ctx.save_for_backward(q, k, v, A, mask)
        ctx.mark_non_differentiable(A)
        return (A * mask) @ v, A

    @staticmethod
    def backward(ctx: Any, d_said: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, A, mask = ctx.saved_tensors
        d_log = (d_said @ v.mT).mul_(mask).mul_(A)
        d_scores = d_log - A * d_log.sum(-1, keepdim=True)
        return d_scores @ k, d_scores.mT @ q, (A * mask).mT @ d_said, None, None


class PostNormModule(ScoredModule):
    """(n, T) indices -> (n, scored, vocabulary) logits of the tokens that follow the last `scored` positions."""

    def __init__(self, c: PostNorm, vocabulary: int, T: int, scored: int, rng: torch.Generator) -> None:
        super().__init__(T, scored, c.context)
        self.c = c
        self.encoder = _orthogonal(vocabulary, c.width, rng)  # for one-hot tokens, selected by index
        bound = math.sqrt(6 / (max(PUBLISHED_POSITIONS, self.T) + c.width))
        self.positions = nn.Parameter(_uniform((self.T, c.width), bound, rng))
        self.layers = nn.ModuleList(Block(c, rng) for _ in range(c.layers))
        self.decoder = _orthogonal(c.width, vocabulary, rng)
        self.register_buffer("hidden", torch.full((self.T, self.T), -math.inf).triu(1), persistent=False)  # ahead

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = rows_of(tokens, widened(self.encoder)) + widened(self.positions)
        x = dropout(x, self.c.dropout) if self.training else x
        maps = []
        for i, block in enumerate(self.layers):
            rows = self.scored if i == len(self.layers) - 1 else self.T
            x, weights = block(x, self.hidden, rows)
            maps.append(weights)
        return x @ self.decoder, maps


def widened(x: Tensor, dims: int = 1) -> Tensor:
    """Padded with zero columns, and zero rows if `dims` is 2, to a multiple of 16."""
    added = [-size % MULTIPLE for size in x.shape[: -1 - dims : -1]]
    return F.pad(x, [n for a in added for n in (0, a)]) if any(added) else x


def dropout(x: Tensor, rate: float) -> Tensor:
    return x * dropout_mask(x, rate) if rate else x


def dropout_mask(x: Tensor, rate: float) -> Tensor:
    """Zero with probability `rate`, rounded to 16 bits, else the value that makes the mean 1. It uses PyTorch's default
    generator, as F.dropout does, which takes 4 times as long."""
    if not rate:
        return torch.ones_like(x)
    dropped = round(rate * 2**16)
    noise = torch.empty(math.ceil(x.numel() / 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    bits = noise.view(torch.int16)[: x.numel()].view(x.shape)
    return torch.ge(bits, dropped - 2**15, out=x.new_empty(x.shape)).mul_(2**16 / (2**16 - dropped))


def _orthogonal(rows: int, columns: int, rng: torch.Generator) -> nn.Parameter:
    """Orthonormal rows, or orthonormal columns if there are more rows; uniform over all such matrices."""
    Q = haar((max(rows, columns), min(rows, columns)), rng)
    return nn.Parameter((Q if rows >= columns else Q.T).contiguous())
