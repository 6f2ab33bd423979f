"""In-context associative recall (Sections 3.1 and C.1): name the value whose key is the query."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ._answered import Answered
from .single_location import Probability
from .task import Batch, config


@config
class Recall(Answered):
    """Find the query among the keys and name its value.

        Y I   A X   U R   Z Y   C A   Z        target: Y
        k v   k v   k v   k v   k v   query

    Keys are distinct, values too, and both come from one vocabulary. The mapping of keys to values is drawn anew for
    every sequence. With probability p the query is one of the first `repeated` tokens of the vocabulary, else any
    token. The query appears in the context B times on average. With `copies="always"` one slot, chosen uniformly, holds
    it, and every other slot with probability (B - 1)/(pairs - 1). With `copies="bernoulli"`, the paper's rule, each
    slot holds it with probability B/pairs; sometimes no slot does, and the target cannot be known. Zucchet et al. 2025,
    Sections 3.1 and C.1.

    With `joined=True` a pair shares one position, so no head has to copy a key to its value:

        YI   AX   UR   ZY   CA   Z-        target: Y
        kv   kv   kv   kv   kv   query

    A position then holds two indices, the key and `tokens` + the value, and the model adds their vectors. The query has
    the index 2 `tokens` (`-`) beside it. Keys, values and query are those of the same draw with `joined=False`.
    """

    version: ClassVar[int] = 1  # raised when what is drawn changes
    discrete: ClassVar[bool] = True
    evaluation: ClassVar[int] = 2048
    beside: ClassVar[int] = 256  # on 64 sequences an accuracy has a standard error of 0.06
    decides: ClassVar[Literal["loss", "accuracy"]] = "accuracy"

    tokens: Annotated[int, Field(ge=3, le=65_536)] = 64  # size of the vocabulary; it is drawn from without replacement
    pairs: Annotated[int, Field(ge=2, le=32_767)] = 8  # of a key and a value; the sequence has 2 pairs + 1 tokens
    B: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0  # mean copies of the query (in-context repetition)
    p: Probability = 0.0  # chance that the query is one of the repeated tokens (cross-sample repetition)
    repeated: Annotated[int, Field(ge=1)] = 2  # how many tokens cross-sample repetition favours
    copies: Literal["always", "bernoulli"] = "always"  # at least one copy, or the paper's rule
    joined: bool = False  # a pair is one position, of pairs + 1

    @model_validator(mode="after")
    def _possible(self) -> "Recall":
        if self.pairs >= self.tokens:
            raise ValueError(f"task.pairs is {self.pairs}, but must be below task.tokens = {self.tokens}")
        if self.pairs < self.B:
            raise ValueError(f"task.B is {self.B:g}, but must be at most task.pairs = {self.pairs}")
        if self.repeated > self.tokens:
            raise ValueError(f"task.repeated is {self.repeated}, but must be at most task.tokens = {self.tokens}")
        return self

    @property
    def T(self) -> int:
        return self.pairs + 1 if self.joined else 2 * self.pairs + 1

    @property
    def chance(self) -> float:
        """The accuracy of a guess among the values of the context."""
        return 1 / self.pairs

    @property
    def inputs(self) -> int:
        return 2 * self.tokens + 1 if self.joined else self.tokens

    @property
    def outputs(self) -> int:
        return self.tokens

    def queries(self, n: int, rng: torch.Generator) -> Tensor:
        """n draws of the query, (n,): p/repeated + (1 - p)/tokens on each repeated token."""
        query = torch.randint(self.tokens, (n,), generator=rng)
        if self.p > 0:
            repeated = torch.randint(self.repeated, (n,), generator=rng)
            query = torch.where(torch.rand(n, generator=rng) < self.p, repeated, query)
        return query

    def slots(self, n: int, rng: torch.Generator) -> Tensor:
        """Which of the pairs hold the query, (n, pairs)."""
        if self.copies == "bernoulli":
            return torch.rand(n, self.pairs, generator=rng) < self.B / self.pairs
        one = torch.randint(self.pairs, (n, 1), generator=rng)
        holds = torch.rand(n, self.pairs, generator=rng) < (self.B - 1) / (self.pairs - 1)
        return holds.scatter_(1, one, True)

    def sample(self, n: int, rng: torch.Generator, world: dict[str, Tensor]) -> Batch:
        query = self.queries(n, rng)[:, None]  # (n, 1)
        holds = self.slots(n, rng)
        # The first tokens of two random orders: distinct keys without the query, and distinct values; the last value
        # is that of the query.
        order = torch.rand(2 * n, self.tokens, generator=rng, dtype=torch.float32)
        order[:n].scatter_(1, query, -1.0)
        others, values = order.topk(self.pairs + 1, dim=1).indices.split(n)  # (n, pairs + 1)
        target = values[:, -1:]
        keys = torch.where(holds, query, others[:, :-1])
        values = torch.where(holds, target, values[:, :-1])
        relevant = torch.zeros(n, self.T, dtype=torch.bool)
        if self.joined:
            nothing = torch.full_like(query, 2 * self.tokens)
            rows = torch.cat([keys, query], 1), torch.cat([self.tokens + values, nothing], 1)
            relevant[:, :-1] = holds
            return Batch(torch.stack(rows, 2), target[:, 0], relevant)  # inputs (n, T, 2)
        inputs = torch.cat([torch.stack([keys, values], 2).flatten(1), query], 1)  # (n, T)
        relevant[:, 1:-1:2] = holds
        return Batch(inputs, target[:, 0], relevant)

    def clean(self) -> "Recall":
        return replace(self, B=1.0, p=0.0, repeated=2, copies="always")

    def links(self, batch: Batch) -> dict[str, Tensor]:
        """Copying: from each right value to the key before it; none where they share one position."""
        if self.joined:
            return {}
        copy = torch.diag_embed(batch.relevant[:, 1:], offset=-1)  # (n, T, T): row t, column t - 1
        return {"copy": copy}
