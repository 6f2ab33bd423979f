"""What the two tasks of paper 2 share: a past cut into groups of lags, some more important than others."""

import math
from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from .task import Batch, Task, World, config, rows_of

Size = Annotated[int, Field(ge=1, le=4096)]


@config
class Lagged(Task):
    """Groups of lags, nearest first, with a feature matrix each: A_k = m^(groups - k) Q_k, Q_k orthogonal.

    The nearest group matters most, or, with `importance="far"`, the farthest. Training draws from a fixed set of
    `sequences`, in passes, or, with 0, anew at every step.
    """

    d: Annotated[int, Field(ge=2, le=4096)] = 50  # size of the vocabulary, or of a token
    groups: Size = 3
    span: Size = 2  # lags in a group
    stride: Annotated[int, Field(ge=0, le=4096)] = 0  # from one group to the next; 0 means the span: no overlap
    m: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 1.7  # how much more a group matters than the next
    importance: Literal["near", "far"] = "near"
    features: Literal["orthogonal", "frobenius", "shared"] = "orthogonal"  # also: tr Q_i^T Q_j = 0, or one Q for all
    weights: tuple[Annotated[float, Field(gt=0, le=100)], ...] = ()  # alpha inside a span; their mean is made 1
    rank: Annotated[int, Field(ge=0, le=4096)] = 0  # of the features; 0 means full
    scored: Size = 20  # tokens that are predicted
    sequences: Annotated[int, Field(ge=0, le=10**7)] = 0  # of the training set; 0 means fresh ones at every step

    @model_validator(mode="after")
    def _possible(self) -> "Lagged":
        if self.m < 1:
            far = "where the farthest group is to matter most, task.importance=far"
            raise ValueError(f"task.m is {self.m:g}, but must be at least 1; {far}")
        if self.weights and len(self.weights) != self.span:
            raise ValueError(f"task.weights has {len(self.weights)} numbers, but task.span is {self.span}")
        if self.rank > self.d:
            raise ValueError(f"task.rank is {self.rank}, but must be at most task.d = {self.d}")
        if self.features == "frobenius" and self.rank:
            raise ValueError("task.rank is given, but with task.features = frobenius features have full rank")
        if self.features == "frobenius" and self.groups > self.d:
            raise ValueError(f"task.groups is {self.groups}, but must be at most task.d = {self.d}")
        return self

    # -- sizes

    @property
    def step(self) -> int:
        return self.stride or self.span

    @property
    def context(self) -> int:
        """Lags that matter."""
        return (self.groups - 1) * self.step + self.span

    @property
    def T(self) -> int:
        """Tokens that the model sees: all but the last."""
        return self.context + self.scored - 1

    @property
    def inputs(self) -> int:
        return self.d

    @property
    def outputs(self) -> int:
        return self.d

    def lags(self, k: int) -> list[int]:
        """I(k + 1): the lags of a group, nearest first."""
        return [k * self.step + i for i in range(1, self.span + 1)]

    @property
    def order(self) -> list[int]:
        """The groups, the most important first."""
        return list(range(self.groups)) if self.importance == "near" else list(range(self.groups))[::-1]

    # -- features

    def feature_matrices(self, rng: torch.Generator) -> Tensor:
        """A, (groups, d, d)."""
        strength = torch.tensor([self.m ** (self.groups - 1 - self.order.index(k)) for k in range(self.groups)])
        return strength[:, None, None] * self._orthogonal(rng)

    def _orthogonal(self, rng: torch.Generator) -> Tensor:
        shape = (1 if self.features == "shared" else self.groups, self.d, self.d)
        Q = torch.linalg.qr(torch.randn(shape, generator=rng))[0]
        if self.features == "shared":
            Q = Q.expand(self.groups, -1, -1)
        if self.features == "frobenius":  # Q_k = U P_k with P_k the k-th power of the cyclic shift: tr Q_i^T Q_j = 0
            shift = torch.eye(self.d).roll(1, 0)
            powers = [torch.linalg.matrix_power(shift, k) for k in range(self.groups)]
            Q = torch.stack([Q[0] @ P @ Q[1 % len(Q)] for P in powers])
        if self.rank:  # each on a random subspace of its own, or the shared one on one
            basis = torch.linalg.qr(torch.randn(len(Q), self.d, self.d, generator=rng))[0][:, :, : self.rank]
            basis = basis[:1] if self.features == "shared" else basis
            Q = Q @ basis @ basis.mT
        return Q

    def _alpha(self) -> list[float]:
        mean = sum(self.weights) / len(self.weights) if self.weights else 1.0
        return [w / mean for w in self.weights] or [1.0] * self.span

    def lag_matrices(self, A: Tensor, groups: Iterable[int]) -> Tensor:
        """What a token at each lag adds to the prediction, as rows: (context, d, d)."""
        out = torch.zeros(self.context, self.d, self.d)
        for k in groups:
            for lag, alpha in zip(self.lags(k), self._alpha(), strict=True):
                out[lag - 1] += alpha * A[k].T
        return out

    def ladder(self, A: Tensor) -> list[Tensor]:
        """The lag matrices of the truncated laws A*_{1:i}, i = 1 .. groups, most important first."""
        return [self.lag_matrices(A, self.order[: i + 1]) for i in range(self.groups)]

    def along(self, tokens: Tensor, lag_matrices: Tensor) -> Tensor:
        """What the tokens before each scored one add up to, (n, scored, d)."""
        out = torch.zeros(len(tokens), self.scored, self.d)
        for lag in range(1, self.context + 1):
            start = self.context - lag
            out += rows_of(tokens[:, start : start + self.scored], lag_matrices[lag - 1])
        return out

    # -- batches

    def batch(self, step: int, n: int, rng: torch.Generator, world: World) -> Batch:
        """The batch of a step: fresh, or the next part of this pass over the training set, in an order of its own."""
        if not self.sequences:
            return self.sample(n, rng, world)
        n = min(n, self.sequences)
        a_pass, part = divmod(step, self.steps_a_pass(n))
        order = torch.Generator().manual_seed(int(world["seed"]) + a_pass)
        return self.chosen(world, torch.randperm(self.sequences, generator=order)[part * n : (part + 1) * n])

    def chosen(self, world: World, which: Tensor) -> Batch:
        """Some sequences of the training set."""
        raise NotImplementedError

    def steps_a_pass(self, n: int) -> int:
        return math.ceil(self.sequences / min(n, self.sequences)) if self.sequences else 3

    def relevant(self, n: int) -> Tensor:
        """The tokens that the last prediction depends on, (n, T)."""
        return torch.arange(self.T).expand(n, -1) >= self.T - self.context

    def links(self, batch: Batch) -> dict[str, Tensor]:
        """From every scored position to the tokens of each group: `group1` and so on, (n, T, T)."""
        rows = torch.arange(self.context - 1, self.T)
        links = {}
        for k in range(self.groups):
            mask = torch.zeros(self.T, self.T, dtype=torch.bool)
            for lag in self.lags(k):
                mask[rows, rows + 1 - lag] = True
            links[f"group{k + 1}"] = mask.expand(len(batch.inputs), -1, -1)
        return links
