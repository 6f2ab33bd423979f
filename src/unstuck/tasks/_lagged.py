"""What the two tasks of paper 2 share: past tokens in groups of lags of different importance."""

import math
from collections.abc import Iterable
from importlib.resources import as_file, files
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from .task import Batch, Task, World, config, onto, rows_of

Size = Annotated[int, Field(ge=1, le=4096)]

#: Q_k of the published runs, oldest group first, (3, 50, 50): U Vh^T from the singular value decomposition of three
#: normal matrices of torch's seed 0. They are stored because the signs of singular vectors differ between libraries.
PUBLISHED = files("unstuck.tasks") / "published_teacher.npy"


@config
class Lagged(Task):
    """Groups of lags with one feature matrix each: A_k = m^(groups - k) Q_k, Q_k orthogonal, k = 1 the nearest group.

    The nearest group matters most; with `importance="far"` the farthest does. Training uses a fixed set of `sequences`
    in passes; with 0 it draws new sequences at every step. Lists begin with the oldest, as in the paper's code: with
    `span=[2, 4, 8]` the farthest group has two lags, with `weights=[0.7, 0.3]` the older lag of a group weighs more.
    """

    d: Annotated[int, Field(ge=2, le=4096)] = 50  # size of the vocabulary, or of a token
    groups: Size = 3  # of lags, each with one feature matrix
    span: Size | tuple[Size, ...] = 2  # lags in a group; a list: of each group, the oldest group first
    stride: Annotated[int, Field(ge=0, le=4096)] = 0  # between starts of neighbouring groups; 0: no overlap
    m: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 1.7  # importance of a group over that of the next
    importance: Literal["near", "far"] = "near"  # which group matters most
    features: Literal["orthogonal", "frobenius", "shared"] = "orthogonal"  # frobenius: tr Q_i^T Q_j = 0; shared: one Q
    teacher: Literal["random", "published"] = "random"  # Q: Haar, from the run's seed, or the authors' own
    weights: tuple[
        Annotated[float, Field(gt=0, le=100)], ...
    ] = ()  # alpha in a span, oldest lag first; scaled to sum to 1
    rank: Annotated[int, Field(ge=0, le=4096)] = 0  # of the features; 0 means full
    scored: Size = 20  # tokens that are predicted
    sequences: Annotated[int, Field(ge=0, le=10**7)] = 0  # in the training set; 0: new ones at every step

    @model_validator(mode="after")
    def _possible(self) -> "Lagged":
        if self.m < 1:
            far = "where the farthest group is to matter most, task.importance=far"
            raise ValueError(f"task.m is {self.m:g}, but must be at least 1; {far}")
        self._check_lags()
        self._check_features()
        return self

    def _check_lags(self) -> None:
        if isinstance(self.span, tuple) and len(self.span) != self.groups:
            raise ValueError(f"task.span has {len(self.span)} numbers, but task.groups is {self.groups}")
        for j, (start, span) in enumerate(zip(self._starts, self.spans, strict=True)):
            if start + span > self.context:
                raise ValueError(
                    f"task.span is {list(self.spans)} with task.stride = {self.stride}: the span of group {j + 1} must "
                    f"be at most {self.context - start}, or it would reach into the future"
                )
        if self.weights and set(self.spans) != {len(self.weights)}:
            shown = list(self.span) if isinstance(self.span, tuple) else self.span
            raise ValueError(
                f"task.weights has {len(self.weights)} numbers, but task.span is {shown}: all groups need as many "
                "lags as there are weights"
            )

    def _check_features(self) -> None:
        if self.rank > self.d:
            raise ValueError(f"task.rank is {self.rank}, but must be at most task.d = {self.d}")
        if self.features == "frobenius" and self.rank:
            raise ValueError("task.rank is given, but with task.features = frobenius features have full rank")
        if self.features == "frobenius" and self.groups > self.d**2:
            raise ValueError(f"task.groups is {self.groups}, but must be at most task.d^2 = {self.d**2}")
        if self.teacher == "published":
            for name, needed in (("d", 50), ("groups", 3), ("rank", 0)):
                if getattr(self, name) != needed:
                    found = getattr(self, name)
                    raise ValueError(f"task.{name} is {found}, but must be {needed} with task.teacher = published")
            if self.features == "shared":
                raise ValueError(
                    "task.features is shared, but must be orthogonal or frobenius with task.teacher = published, which "
                    "has a matrix for each group"
                )

    # -- sizes

    @property
    def spans(self) -> tuple[int, ...]:
        """Lags of each group, the oldest group first."""
        return self.span if isinstance(self.span, tuple) else (self.span,) * self.groups

    @property
    def _starts(self) -> list[int]:
        """Start of each group, counted from the oldest token of the context, oldest group first."""
        if self.stride:
            return [j * self.stride for j in range(self.groups)]
        return [sum(self.spans[:j]) for j in range(self.groups)]

    @property
    def context(self) -> int:
        """Number of past tokens that the prediction depends on."""
        return self._starts[-1] + self.spans[-1]

    @property
    def T(self) -> int:
        """Tokens in the model's input: all but the last."""
        return self.context + self.scored - 1

    @property
    def inputs(self) -> int:
        return self.d

    @property
    def outputs(self) -> int:
        return self.d

    def lags(self, k: int) -> list[int]:
        """I(k + 1): the lags of a group, nearest first; k = 0 is the nearest group."""
        j = self.groups - 1 - k
        oldest = self.context - self._starts[j]
        return list(range(oldest - self.spans[j] + 1, oldest + 1))

    @property
    def order(self) -> list[int]:
        """The groups, the most important first."""
        return list(range(self.groups)) if self.importance == "near" else list(range(self.groups))[::-1]

    # -- features

    def feature_matrices(self, rng: torch.Generator) -> Tensor:
        """A, (groups, d, d), the nearest group first."""
        strength = torch.tensor([self.m ** (self.groups - 1 - self.order.index(k)) for k in range(self.groups)])
        return strength[:, None, None] * self._features(rng).flip(0)

    def _features(self, rng: torch.Generator) -> Tensor:
        """Q, the oldest group first."""
        if self.teacher == "published":
            with as_file(PUBLISHED) as path:
                Q = torch.from_numpy(np.load(path, allow_pickle=False))
        else:
            Q = haar((1 if self.features == "shared" else self.groups, self.d, self.d), rng)
        if self.features == "shared":
            Q = Q.expand(self.groups, -1, -1)
        if self.features == "frobenius":
            Q = frobenius_orthogonal(Q)
        if self.rank:  # each on its own random subspace; a shared Q on one
            basis = haar((len(Q), self.d, self.d), rng)[:, :, : self.rank]
            basis = basis[:1] if self.features == "shared" else basis
            Q = Q @ basis @ basis.mT
        return Q

    def _alpha(self, k: int) -> list[float]:
        """Weights of the lags of a group, nearest first."""
        if not self.weights:
            return [1.0] * len(self.lags(k))
        return [w / sum(self.weights) for w in reversed(self.weights)]

    def lag_matrices(self, A: Tensor, groups: Iterable[int]) -> Tensor:
        """Contribution of a token at each lag to the prediction, as rows: (context, d, d)."""
        out = torch.zeros(self.context, self.d, self.d)
        for k in groups:
            for lag, alpha in zip(self.lags(k), self._alpha(k), strict=True):
                out[lag - 1] += alpha * A[k].T
        return out

    def ladder(self, A: Tensor) -> list[Tensor]:
        """The lag matrices of the truncated laws A*_{1:i}, i = 1 .. groups, most important first."""
        return [self.lag_matrices(A, self.order[: i + 1]) for i in range(self.groups)]

    def along(self, tokens: Tensor, lag_matrices: Tensor) -> Tensor:
        """Sum of the contributions of the tokens before each scored one, (n, scored, d)."""
        out = torch.zeros(len(tokens), self.scored, self.d)
        for lag in range(1, self.context + 1):
            start = self.context - lag
            out += rows_of(tokens[:, start : start + self.scored], lag_matrices[lag - 1])
        return out

    # -- batches

    def batch(self, step: int, n: int, rng: torch.Generator, world: World) -> Batch:
        """The batch of a step: new sequences, or the next part of a pass over the training set (each pass shuffled)."""
        if not self.sequences:
            return self.sample(n, rng, world)
        n = min(n, self.sequences)
        a_pass, part = divmod(step, self.steps_a_pass(n))
        order = torch.Generator().manual_seed(int(world["seed"]) + a_pass)
        which = torch.randperm(self.sequences, generator=order, device="cpu")[part * n : (part + 1) * n]
        return self.chosen(world, onto(which, rng.device.type))  # the order of a CPU, on every device

    def chosen(self, world: World, which: Tensor) -> Batch:
        """Some sequences of the training set."""
        raise NotImplementedError

    def steps_a_pass(self, n: int) -> int:
        return math.ceil(self.sequences / min(n, self.sequences)) if self.sequences else 3

    def against_truths(self, losses: Tensor, truth: Tensor, kl: Tensor) -> dict[str, Tensor]:
        """Loss above that of the truth, and KL( A*_{1:i} || model ) for every i, from (n,), (n,) and (n, groups)."""
        return {"excess_loss": losses - truth} | {f"kl_{i + 1}": kl[:, i] for i in range(self.groups)}

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


def haar(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Matrices with orthonormal columns, drawn uniformly (Haar measure): Q of the QR decomposition of a normal matrix,
    with signs such that the diagonal of R is positive. Without the signs Q is not uniform: its trace is negative on
    average (Mezzadri 2007)."""
    Q, R = torch.linalg.qr(torch.randn(shape, generator=rng))
    return Q * R.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]


def frobenius_orthogonal(Q: Tensor) -> Tensor:
    """Gram-Schmidt on matrices as vectors, so that tr Q_i^T Q_j = 0; the first is kept, and each keeps its norm."""
    out: list[Tensor] = []
    for q in Q:
        rest = q.flatten()
        for done in out:
            rest = rest - (rest @ done.flatten()) / done.square().sum() * done.flatten()
        out.append((rest * (q.norm() / rest.norm())).view_as(q))
    return torch.stack(out)
