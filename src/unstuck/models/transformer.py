"""The Transformer of both tasks of paper 1 (Table 1), read at one position.

A block is attention and a two-layer perceptron, each added to the residual stream. When the output is read at one
position, the last block computes its query, output map and perceptron at that position only, and no keys and values:
with one query q the scores are x_t · (K^T q), and the output is V Σ_t α_t x_t. This is exact, and the last block costs
almost nothing.
"""

import math
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.errors import InvalidCombination
from unstuck.tasks.task import Task

ACTIVATIONS: dict[str, Any] = {"gelu": F.gelu, "relu": F.relu}


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Transformer:
    """Sizes and switches of a Transformer; `build` makes the module."""

    version: ClassVar[int] = 1  # raised when what a run computes changes

    layers: Annotated[int, Field(ge=1, le=1024)] = 2  # blocks of attention and perceptron
    heads: Annotated[int, Field(ge=1, le=1024)] = 4  # of each layer
    width: Annotated[int, Field(ge=1, le=65_536)] = 256  # of the residual stream
    qk: Annotated[int, Field(ge=1, le=65_536)] = 64  # dimension of queries, keys and values of a head
    mlp_factor: Annotated[int, Field(ge=1, le=1024)] = 4  # width of the perceptron over the model's
    mlp: bool = True  # a perceptron after each attention
    skip: bool = True  # residual connections
    layer_norm: bool = False  # before attention and perceptron, and before the read-out
    causal: bool = False  # may a token see only those before it?
    activation: Literal["gelu", "relu"] = "gelu"  # of the perceptron
    init: Literal["default", "xavier"] = "default"  # of every linear map; default: PyTorch's
    embedding: Literal["linear", "normal"] = "linear"  # initial token vectors: as a linear map, or N(0, 1)
    read: Literal["last", "mean"] = "last"  # where the output is read
    positions: Literal["sinusoidal", "none"] = "sinusoidal"  # how a token's place is known

    def build(self, task: Task, rng: torch.Generator) -> "TransformerModule":
        """The module for a task, with initial weights drawn from `rng`."""
        if task.everywhere:
            raise InvalidCombination("model.name = transformer is read at one position; this task needs model.name=gpt")
        if self.embedding != "linear" and not task.discrete:
            raise InvalidCombination(f"model.embedding = {self.embedding} needs a task of tokens; this one has vectors")
        return TransformerModule(self, task.inputs, task.outputs, rng, task.discrete)


class Linear(nn.Linear):
    """nn.Linear with initial weights drawn from a given generator."""

    def __init__(self, inputs: int, outputs: int, rng: torch.Generator, init: str) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = inputs, outputs
        bound = math.sqrt(6 / (inputs + outputs)) if init == "xavier" else 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(_uniform((outputs, inputs), bound, rng))
        self.bias = nn.Parameter(
            torch.zeros(outputs) if init == "xavier" else _uniform((outputs,), 1 / math.sqrt(inputs), rng)
        )


def _uniform(shape: tuple[int, ...], bound: float, rng: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=rng) * 2 - 1) * bound


class Attention(nn.Module):
    def __init__(self, c: Transformer, rng: torch.Generator) -> None:
        super().__init__()
        self.c, inner = c, c.heads * c.qk
        self.query = Linear(c.width, inner, rng, c.init)
        self.key = Linear(c.width, inner, rng, c.init)
        self.value = Linear(c.width, inner, rng, c.init)
        self.out = Linear(inner, c.width, rng, c.init)

    def forward(self, x: Tensor) -> Tensor:  # (n, T, width) -> (n, T, width)
        q, k, v = (self._heads(f(x)) for f in (self.query, self.key, self.value))  # (n, heads, T, qk)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.c.causal)
        return self.out(y.transpose(1, 2).flatten(2))

    def at_last(self, x: Tensor) -> Tensor:  # (n, T, width) -> (n, width): output at the last position
        c = self.c
        seen = self.weights_at_last(x) @ x  # (n, heads, width)
        v = torch.einsum("nhw,hqw->nhq", seen, self.value.weight.view(c.heads, c.qk, c.width))
        return self.out(v.flatten(1) + self.value.bias)

    def weights_at_last(self, x: Tensor) -> Tensor:  # (n, T, width) -> (n, heads, T): attention of the last position
        c = self.c
        q = self.query(x[:, -1]).view(-1, c.heads, c.qk)
        toward = torch.einsum("nhq,hqw->nhw", q, self.key.weight.view(c.heads, c.qk, c.width))
        # the key's bias adds the same to all scores of a query and cancels in the softmax
        return (toward @ x.mT / math.sqrt(c.qk)).softmax(-1)

    def weights(self, x: Tensor) -> Tensor:  # (n, T, width) -> (n, heads, T, T), for probes
        q, k = self._heads(self.query(x)), self._heads(self.key(x))
        scores = q @ k.mT / math.sqrt(self.c.qk)
        if self.c.causal:
            scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -math.inf)
        return scores.softmax(-1)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.c.heads, self.c.qk)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, c: Transformer, rng: torch.Generator) -> None:
        super().__init__()
        self.c = c
        self.attention = Attention(c, rng)
        self.norm1 = nn.LayerNorm(c.width) if c.layer_norm else nn.Identity()
        if c.mlp:
            self.norm2 = nn.LayerNorm(c.width) if c.layer_norm else nn.Identity()
            self.up = Linear(c.width, c.mlp_factor * c.width, rng, c.init)
            self.down = Linear(c.mlp_factor * c.width, c.width, rng, c.init)

    def forward(self, x: Tensor) -> Tensor:
        return self._rest(x, self.attention(self.norm1(x)))

    def at_last(self, x: Tensor) -> Tensor:  # (n, T, width) -> (n, width)
        return self._rest(x[:, -1], self.attention.at_last(self.norm1(x)))

    def _rest(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended if self.c.skip else attended
        if not self.c.mlp:
            return x
        y = self.down(ACTIVATIONS[self.c.activation](self.up(self.norm2(x))))
        return x + y if self.c.skip else y


class TransformerModule(nn.Module):
    """(n, T, inputs) -> (n, outputs), or, if `discrete`, (n, T) or (n, T, k) indices below `inputs` -> (n, outputs)."""

    def __init__(self, c: Transformer, inputs: int, outputs: int, rng: torch.Generator, discrete: bool = False) -> None:
        super().__init__()
        self.c = c
        self.embed: nn.Module = Embedding(inputs, c.width, rng, c) if discrete else Linear(inputs, c.width, rng, c.init)
        self.layers = nn.ModuleList(Block(c, rng) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width) if c.layer_norm else nn.Identity()
        self.read_out = Linear(c.width, outputs, rng, c.init)
        self._positions: Tensor | None = None

    @property
    def blocks(self) -> list[Block]:
        return cast(list[Block], list(self.layers))

    def forward(self, inputs: Tensor) -> Tensor:
        x = self._start(inputs)
        if self.c.read == "mean":
            for block in self.blocks:
                x = block(x)
            return self.read_out(self.norm(x).mean(1))
        for block in self.blocks[:-1]:
            x = block(x)
        return self.read_out(self.norm(self.blocks[-1].at_last(x)))

    def attention(self, inputs: Tensor) -> list[Tensor]:
        """Attention weights of every layer, (n, heads, T, T) each."""
        x, maps = self._start(inputs), []
        for block in self.blocks:
            maps.append(block.attention.weights(block.norm1(x)))
            x = block(x)
        return maps

    def observe(self, inputs: Tensor, *, whole: bool = False) -> tuple[Tensor, list[Tensor]]:
        """The output, and every layer's attention: from the last position, (n, heads, T) each; if `whole`, from all
        positions, (n, heads, T, T)."""
        x, maps = self._start(inputs), []
        for i, block in enumerate(self.blocks):
            look = block.attention.weights if whole else block.attention.weights_at_last
            maps.append(look(block.norm1(x)))
            if i < len(self.blocks) - 1 or self.c.read == "mean":
                x = block(x)
        if self.c.read == "mean":
            return self.read_out(self.norm(x).mean(1)), maps
        return self.read_out(self.norm(self.blocks[-1].at_last(x))), maps

    def _start(self, inputs: Tensor) -> Tensor:
        x = self.embed(inputs)
        if self.c.positions == "none":
            return x
        if self._positions is None or len(self._positions) < x.shape[1] or self._positions.device != x.device:
            self._positions = sinusoidal(x.shape[1], self.c.width).to(x)
        return x + self._positions[: x.shape[1]]


class Embedding(nn.Module):
    """A linear map of one-hot tokens, by index: (n, T) -> (n, T, width). Tokens that share a position are summed:
    (n, T, k) -> (n, T, width).

    The initial weights of a linear map shrink as 1/sqrt(tokens). With `embedding="normal"` entries are N(0, 1) for any
    vocabulary, as in `nn.Embedding`; all other weights have the same initial values.
    """

    def __init__(self, tokens: int, width: int, rng: torch.Generator, c: Transformer) -> None:
        super().__init__()
        own = torch.Generator().set_state(rng.get_state())
        linear = Linear(tokens, width, rng, c.init)
        weight = linear.weight.detach().T.contiguous()
        if c.embedding == "normal":
            weight = torch.randn(tokens, width, generator=own)
        self.weight = nn.Parameter(weight)
        self.bias = linear.bias

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = F.embedding(tokens, self.weight)
        return (vectors.sum(2) if tokens.dim() == 3 else vectors) + self.bias


def sinusoidal(length: int, width: int) -> Tensor:
    """Sines and cosines of wavelengths from 2π to 20,000π (Vaswani et al. 2017)."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    frequency = torch.exp(-math.log(10_000) * torch.arange(0, width, 2, dtype=torch.float32) / width)
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency[: width // 2])
    return table
