"""A GPT: causal Transformer over tokens, normalised before each part, as language models are (Radford et al. 2019).

It predicts at every position, or at the last one for a task that is read there. Initial weights are N(0, 0.02²); those
of maps into the residual stream are smaller by sqrt(2 layers). No linear map has a bias.
"""

import math
from typing import Annotated, ClassVar, Literal, cast

import torch
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.errors import InvalidCombination
from unstuck.tasks.task import Task

STD = 0.02  # of initial weights
ROTARY_BASE = 10_000  # longest wavelength of rotary positions over 2π (Su et al. 2021)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class GPT:
    """Sizes and switches of a GPT; `build` makes the module."""

    version: ClassVar[int] = 1  # raised when what a run computes changes

    layers: Annotated[int, Field(ge=1, le=1024)] = 2  # blocks of attention and perceptron
    heads: Annotated[int, Field(ge=1, le=1024)] = 4  # of each layer
    width: Annotated[int, Field(ge=1, le=65_536)] = 128  # of the residual stream
    mlp: bool = True  # a perceptron after each attention
    mlp_factor: Annotated[int, Field(ge=1, le=1024)] = 4  # its width over the model's
    layer_norm: bool = True  # before attention and perceptron, and before the read-out
    positions: Literal["learned", "rotary", "none"] = "learned"  # how a token's place is known
    tied: bool = True  # the read-out is the embedding's transpose

    @model_validator(mode="after")
    def _possible(self) -> "GPT":
        if self.width % self.heads:
            raise ValueError(f"model.width is {self.width}, but must be a multiple of model.heads = {self.heads}")
        if self.positions == "rotary" and self.qk % 2:
            raise ValueError(f"model.positions = rotary needs heads of an even width, but theirs is {self.qk}")
        return self

    @property
    def qk(self) -> int:
        """Dimension of queries, keys and values of a head."""
        return self.width // self.heads

    def build(self, task: Task, rng: torch.Generator) -> "GPTModule":
        """The module for a task, with initial weights drawn from `rng`."""
        if not task.discrete or not hasattr(task, "T"):
            raise InvalidCombination("model.name = gpt needs a task of tokens, with sequences of one length")
        if self.tied and task.inputs != task.outputs:
            raise InvalidCombination(
                f"model.tied needs a task with as many outputs as tokens, but this one has {task.outputs} and "
                f"{task.inputs}; set model.tied=false"
            )
        return GPTModule(self, task.inputs, task.outputs, task.T, rng, everywhere=task.everywhere)


class Linear(nn.Linear):
    """nn.Linear without bias, with initial weights N(0, std²) drawn from a given generator."""

    def __init__(self, inputs: int, outputs: int, rng: torch.Generator, std: float = STD) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = inputs, outputs
        self.weight = nn.Parameter(std * torch.randn(outputs, inputs, generator=rng))
        self.bias = None  # type: ignore[assignment]


class Attention(nn.Module):
    def __init__(self, c: GPT, rng: torch.Generator) -> None:
        super().__init__()
        self.c = c
        self.qkv = Linear(c.width, 3 * c.width, rng)
        self.out = Linear(c.width, c.width, rng, STD / math.sqrt(2 * c.layers))

    def forward(self, x: Tensor) -> Tensor:  # (n, T, width) -> (n, T, width)
        q, k, v = self._heads(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def weights(self, x: Tensor) -> Tensor:  # (n, T, width) -> (n, heads, T, T), for probes
        q, k, _ = self._heads(x)
        scores = q @ k.mT / math.sqrt(self.c.qk)
        ahead = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        return scores.masked_fill(ahead, -math.inf).softmax(-1)

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # queries, keys, values, (n, heads, T, qk) each
        q, k, v = self.qkv(x).unflatten(2, (3, self.c.heads, self.c.qk)).permute(2, 0, 3, 1, 4)
        if self.c.positions == "rotary":
            q, k = rotated(q), rotated(k)
        return q, k, v


class Block(nn.Module):
    def __init__(self, c: GPT, rng: torch.Generator) -> None:
        super().__init__()
        self.c = c
        self.norm1, self.attention = _norm(c), Attention(c, rng)
        if c.mlp:
            inner = c.mlp_factor * c.width
            self.norm2, self.up = _norm(c), Linear(c.width, inner, rng)
            self.down = Linear(inner, c.width, rng, STD / math.sqrt(2 * c.layers))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)))) if self.c.mlp else x


class GPTModule(nn.Module):
    """(n, T) indices -> (n, T, outputs) logits, or (n, outputs) of the last position unless `everywhere`."""

    def __init__(
        self, c: GPT, inputs: int, outputs: int, length: int, rng: torch.Generator, *, everywhere: bool = True
    ) -> None:
        super().__init__()
        self.c, self.everywhere = c, everywhere
        self.embed = nn.Parameter(STD * torch.randn(inputs, c.width, generator=rng))
        if c.positions == "learned":
            self.positions = nn.Parameter(STD * torch.randn(length, c.width, generator=rng))
        self.layers = nn.ModuleList(Block(c, rng) for _ in range(c.layers))
        self.norm = _norm(c)
        if not c.tied:
            self.read_out = Linear(c.width, outputs, rng)

    @property
    def blocks(self) -> list[Block]:
        return cast(list[Block], list(self.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self._start(tokens)
        for block in self.blocks:
            x = block(x)
        return self._logits(x)

    def attention(self, tokens: Tensor) -> list[Tensor]:
        """Attention weights of every layer, (n, heads, T, T) each."""
        return self.observe(tokens, whole=True)[1]

    def observe(self, tokens: Tensor, *, whole: bool = False) -> tuple[Tensor, list[Tensor]]:
        """The output, and every layer's attention: from the last position, (n, heads, T) each; if `whole`, from all
        positions, (n, heads, T, T)."""
        x, maps = self._start(tokens), []
        for block in self.blocks:
            weights = block.attention.weights(block.norm1(x))
            maps.append(weights if whole else weights[:, :, -1])
            x = block(x)
        return self._logits(x), maps

    def _start(self, tokens: Tensor) -> Tensor:  # (n, T) -> (n, T, width)
        x = F.embedding(tokens, self.embed)
        return x + self.positions[: tokens.shape[1]] if self.c.positions == "learned" else x

    def _logits(self, x: Tensor) -> Tensor:
        x = self.norm(x if self.everywhere else x[:, -1])
        return x @ self.embed.T if self.c.tied else self.read_out(x)


def _norm(c: GPT) -> nn.Module:
    return nn.LayerNorm(c.width) if c.layer_norm else nn.Identity()


def rotated(x: Tensor) -> Tensor:
    """Queries or keys, (n, heads, T, qk), turned by angles that grow with the position, so that their products depend
    on distances only (Su et al. 2021). Coordinate i is paired with i + qk/2."""
    T, half = x.shape[2], x.shape[3] // 2
    frequency = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float32, device=x.device) / half)
    angle = torch.arange(T, dtype=torch.float32, device=x.device)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
