"""Multi-query associative recall (Arora et al. 2023, "Zoology", arXiv 2312.04927): every key is asked."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from .task import Batch, Task, World, config

IGNORED = -100  # the target of a position that is not asked; cross-entropy skips it


@config
class MQAR(Task):
    """Read pairs of a key and a value, then name the value of each key where it is asked again.

        inputs    K P   C X   F R    F a   C j   e q   K o        pairs = 3, T = 14
        targets   . .   . .   . .    R .   X .   . .   P .
                  k v   k v   k v    ?     ?           ?

    Keys are distinct tokens of the first half of the vocabulary (without token 0), values distinct tokens of the second
    half. The mapping is drawn anew for every sequence. The first 2 `pairs` positions hold the pairs. Every key is asked
    once, at one of the places 0, 2, 4, ... after them. Keys draw their places one after the other and without
    replacement, the i-th place (from 1) with probability proportional to i^(power - 1): most are asked soon after the
    pairs. With `power = 1` all places are alike.

    All other positions after the pairs hold `filler`: random tokens of the whole vocabulary, keys included, or token 0.
    They have no target, nor have the pairs. This is the generator of the Zoology repository (`multiquery_ar.py`) with
    its defaults for `power` and `filler`; their vocabulary has 8,192 tokens.

    Loss and accuracy are means over the asked positions.
    """

    version: ClassVar[int] = 1  # raised when what is drawn changes
    discrete: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True
    evaluation: ClassVar[int] = 512  # sequences, each with as many questions as pairs
    decides: ClassVar[Literal["loss", "accuracy", "copy_advantage"]] = "accuracy"

    tokens: Annotated[int, Field(ge=6, le=65_536)] = 64  # size of the vocabulary
    pairs: Annotated[int, Field(ge=2, le=32_767)] = 8  # of a key and a value; each key is asked once
    T: Annotated[int, Field(ge=8, le=65_536)] = 64  # sequence length, at least 4 pairs
    power: Annotated[float, Field(gt=0, le=1)] = 0.01  # exponent of the law of places, plus 1; 1: all places alike
    filler: Literal["random", "zero"] = "random"  # what stands at positions that are not asked

    @model_validator(mode="after")
    def _possible(self) -> "MQAR":
        if self.pairs > self.tokens // 2 - 1:
            most = self.tokens // 2 - 1
            raise ValueError(f"task.pairs is {self.pairs}, but task.tokens = {self.tokens} has only {most} keys")
        if 4 * self.pairs > self.T:
            raise ValueError(f"task.T is {self.T}, but must be at least 4 task.pairs = {4 * self.pairs}")
        return self

    @property
    def chance(self) -> float:
        """The accuracy of a guess among the values of the context."""
        return 1 / self.pairs

    @property
    def inputs(self) -> int:
        return self.tokens

    @property
    def outputs(self) -> int:
        return self.tokens

    def places(self, n: int, rng: torch.Generator) -> Tensor:
        """The position at which each key is asked, (n, pairs).

        The smallest of exponential times with rates p are a draw by p without replacement, in order.
        """
        count = (self.T - 2 * self.pairs) // 2
        p = torch.arange(1, count + 1, dtype=torch.float32) ** (self.power - 1)
        times = torch.empty(n, count).exponential_(generator=rng) / p
        return 2 * self.pairs + 2 * times.topk(self.pairs, largest=False).indices

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        half = self.tokens // 2
        keys = 1 + _distinct(n, half - 1, self.pairs, rng)
        values = half + _distinct(n, self.tokens - half, self.pairs, rng)
        places = self.places(n, rng)
        if self.filler == "random":
            inputs = torch.randint(self.tokens, (n, self.T), generator=rng)
        else:
            inputs = torch.zeros(n, self.T, dtype=torch.long)
        inputs[:, : 2 * self.pairs] = torch.stack([keys, values], 2).flatten(1)
        inputs.scatter_(1, places, keys)
        targets = torch.full((n, self.T), IGNORED).scatter_(1, places, values)
        relevant = torch.zeros(n, self.T, dtype=torch.bool)  # every question has a token of its own: see `links`
        return Batch(inputs, targets, relevant)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of each sequence over its asked positions."""
        each = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED)
        return each.view_as(targets).sum(1) / self.pairs

    def measures(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        right = (outputs.argmax(-1) == batch.targets).sum(1) / self.pairs
        return {"loss": self.losses(outputs, batch.targets), "accuracy": right}

    def links(self, batch: Batch) -> dict[str, Tensor]:
        """Selection: from each asked key to its value. Copying: from each value to the key before it."""
        values = torch.zeros(self.T, dtype=torch.bool, device=batch.inputs.device)
        values[1 : 2 * self.pairs : 2] = True
        select = (batch.targets[:, :, None] == batch.inputs[:, None, :]) & values  # (n, T, T)
        copy = torch.diag_embed(values[1:], offset=-1).expand_as(select)  # row t, column t - 1
        return {"attn": select, "copy": copy}


def _distinct(n: int, among: int, count: int, rng: torch.Generator) -> Tensor:
    """n draws of `count` different numbers below `among`, in random order, (n, count)."""
    return torch.rand(n, among, generator=rng).topk(count, dim=1).indices
