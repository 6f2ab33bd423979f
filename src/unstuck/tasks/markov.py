"""The high-order Markov chain of paper 2: the next token depends on groups of lags, some more important than others."""

import math
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from .task import Batch, Task, World, config

Size = Annotated[int, Field(ge=1, le=4096)]


@config
class Markov(Task):
    """Predict the next token of a chain whose past matters in groups.

        lags   6 5   4 3   2 1
             [I(3)] [I(2)] [I(1)]  x_t ~ softmax(1/tau Σ_k A_k Σ_{i in I(k)} alpha_i x_{t-i})

    A_k = m^(groups - k) Q_k with random orthogonal Q_k: the nearest group matters most, or, with `importance="far"`,
    the farthest. A sequence is a uniform prefix as long as the context, then `scored` tokens drawn from the law, all
    of which are predicted. Training draws from a fixed set of `sequences`, in passes, or, with 0, anew at every step.
    Yüksel et al. 2026.
    """

    version: ClassVar[int] = 1  # raised when what is drawn changes
    discrete: ClassVar[bool] = True
    evaluation: ClassVar[int] = 3000
    probe: ClassVar[int] = 3000

    d: Annotated[int, Field(ge=2, le=4096)] = 50  # size of the vocabulary
    groups: Size = 3
    span: Size = 2  # lags in a group
    stride: Annotated[int, Field(ge=0, le=4096)] = 0  # from one group to the next; 0 means the span: no overlap
    m: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 1.7  # how much more a group matters than the next
    tau: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 0.1  # temperature
    importance: Literal["near", "far"] = "near"
    features: Literal["orthogonal", "frobenius", "shared"] = "orthogonal"  # also: tr Q_i^T Q_j = 0, or one Q for all
    weights: tuple[Annotated[float, Field(gt=0, le=100)], ...] = ()  # alpha inside a span; their mean is made 1
    rank: Annotated[int, Field(ge=0, le=4096)] = 0  # of the features; 0 means full
    scored: Size = 20  # tokens drawn from the law
    sequences: Annotated[int, Field(ge=0, le=10**7)] = 9000  # of the training set; 0 means fresh ones at every step

    @model_validator(mode="after")
    def _possible(self) -> "Markov":
        if self.weights and len(self.weights) != self.span:
            raise ValueError(f"task.weights has {len(self.weights)} numbers, but task.span is {self.span}")
        if self.rank > self.d:
            raise ValueError(f"task.rank is {self.rank}, but must be at most task.d = {self.d}")
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

    # -- the law

    def world(self, rng: torch.Generator) -> World:
        """The features A, (groups, d, d), one matrix a lag, and the training set."""
        Q = self._features(rng)
        strength = torch.tensor([self.m ** (self.groups - 1 - self.order.index(k)) for k in range(self.groups)])
        A = strength[:, None, None] * Q
        world = {"A": A}
        world["lag_matrices"] = self._lag_matrices(A, range(self.groups))  # (context, d, d), transposed, over tau
        if self.sequences:
            world["train"] = self.chain(self.sequences, rng, world)
            world["seed"] = torch.randint(2**62, (1,), generator=rng)
        return world

    def _features(self, rng: torch.Generator) -> Tensor:
        shape = (1 if self.features == "shared" else self.groups, self.d, self.d)
        Q = torch.linalg.qr(torch.randn(shape, generator=rng))[0]
        if self.features == "shared":
            Q = Q.expand(self.groups, -1, -1)
        if self.features == "frobenius":  # Q_k = U P_k with P_k the k-th power of the cyclic shift: tr Q_i^T Q_j = 0
            shift = torch.eye(self.d).roll(1, 0)
            powers = [torch.linalg.matrix_power(shift, k) for k in range(self.groups)]
            Q = torch.stack([Q[0] @ P @ Q[1 % len(Q)] for P in powers])
        if self.rank:
            Q = Q @ torch.diag((torch.arange(self.d) < self.rank).float())
        return Q

    def _alpha(self) -> list[float]:
        mean = sum(self.weights) / len(self.weights) if self.weights else 1.0
        return [w / mean for w in self.weights] or [1.0] * self.span

    def _lag_matrices(self, A: Tensor, groups: Any) -> Tensor:
        """What a token at each lag adds to the logits, a row a token: (context, d, d)."""
        out = torch.zeros(self.context, self.d, self.d)
        for k in groups:
            for lag, alpha in zip(self.lags(k), self._alpha(), strict=True):
                out[lag - 1] += alpha * A[k].T / self.tau
        return out

    def logits(self, tokens: Tensor, lag_matrices: Tensor) -> Tensor:
        """Of the scored tokens, given all before them, (n, scored, d)."""
        out = torch.zeros(len(tokens), self.scored, self.d)
        for lag in range(1, self.context + 1):
            start = self.context - lag
            out += F.embedding(tokens[:, start : start + self.scored], lag_matrices[lag - 1])
        return out

    def chain(self, n: int, rng: torch.Generator, world: World) -> Tensor:
        """n sequences, (n, context + scored)."""
        tokens = torch.empty(n, self.context + self.scored, dtype=torch.long)
        tokens[:, : self.context] = torch.randint(self.d, (n, self.context), generator=rng)
        matrices = world["lag_matrices"]
        for t in range(self.context, self.context + self.scored):
            logits = sum(F.embedding(tokens[:, t - lag], matrices[lag - 1]) for lag in range(1, self.context + 1))
            # The largest of logits plus Gumbel noise is a draw from their softmax.
            noise = torch.rand(n, self.d, generator=rng).clamp_(min=1e-30).log_().neg_().log_()
            tokens[:, t] = (logits - noise).argmax(-1)
        return tokens

    def truths(self, tokens: Tensor, world: World) -> Tensor:
        """Log probabilities of the truncated laws A*_{1:i}, i = 1 .. groups, most important first:
        (n, groups, scored, d)."""
        A = world["A"].cpu()
        laws = [self._lag_matrices(A, self.order[: i + 1]) for i in range(self.groups)]
        return torch.stack([self.logits(tokens.cpu(), law).log_softmax(-1) for law in laws], 1)

    # -- batches

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        return self._batch(self.chain(n, rng, world))

    def batch(self, step: int, n: int, rng: torch.Generator, world: World) -> Batch:
        """The batch of a step: fresh, or the next part of this pass over the training set, in an order of its own."""
        if not self.sequences:
            return self.sample(n, rng, world)
        n = min(n, self.sequences)
        a_pass, part = divmod(step, self.steps_a_pass(n))
        order = torch.Generator().manual_seed(int(world["seed"]) + a_pass)
        chosen = torch.randperm(self.sequences, generator=order)[part * n : (part + 1) * n]
        return self._batch(world["train"][chosen])

    def steps_a_pass(self, n: int) -> int:
        return math.ceil(self.sequences / min(n, self.sequences)) if self.sequences else 3

    def held_out(self, n: int, rng: torch.Generator, world: World) -> Batch:
        batch = self.sample(n, rng, world)
        return batch._replace(extra=self.truths(batch.inputs, world))

    def _batch(self, tokens: Tensor) -> Batch:
        relevant = torch.arange(self.T).expand(len(tokens), -1) >= self.T - self.context  # for the last token
        return Batch(tokens[:, :-1], tokens[:, self.context :], relevant)

    # -- what is measured

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of a sequence's scored tokens, (n,)."""
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets).mean(1)

    def measures(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Loss, loss above that of the truth, and KL( A*_{1:i} || model ) for every i."""
        losses = self.losses(outputs, batch.targets)
        found = {"loss": losses}
        if batch.extra.numel():
            truths = batch.extra  # (n, groups, scored, d)
            truth = -truths[:, -1].gather(-1, batch.targets[:, :, None])[..., 0].mean(1)
            found["excess_loss"] = losses - truth
            model = outputs.log_softmax(-1)[:, None]
            kl = (truths.exp() * (truths - model)).sum(-1).mean(-1)  # (n, groups)
            found |= {f"kl_{i + 1}": kl[:, i] for i in range(self.groups)}
        return found

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
