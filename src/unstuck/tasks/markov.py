"""The high-order Markov chain of paper 2: the next token depends on groups of lags of different importance."""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from ._lagged import Lagged
from .task import Batch, World, config, mean_cross_entropy


@config
class Markov(Lagged):
    """Predict the next token of a chain that depends on groups of past tokens.

        lags   6 5   4 3   2 1
             [I(3)] [I(2)] [I(1)]  x_t ~ softmax(1/tau Σ_k A_k Σ_{i in I(k)} alpha_i x_{t-i})

    A_k = m^(groups - k) Q_k with random orthogonal Q_k: the nearest group matters most; with `importance="far"` the
    farthest does. A sequence is a uniformly random prefix of the length of the context, then `scored` tokens drawn from
    the chain; all of these are predicted. Training uses a fixed set of `sequences` in passes; with 0 it draws new
    sequences at every step. Yüksel et al. 2026.
    """

    version: ClassVar[int] = 2  # raised when what is drawn changes
    discrete: ClassVar[bool] = True
    evaluation: ClassVar[int] = 3000
    probe: ClassVar[int] = 3000

    tau: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 0.1  # temperature
    sequences: Annotated[int, Field(ge=0, le=10**7)] = 9000

    def world(self, rng: torch.Generator) -> World:
        """The features A, (groups, d, d), one matrix for each lag, and the training set."""
        A = self.feature_matrices(rng)
        world = {"A": A, "lag_matrices": self.lag_matrices(A, range(self.groups)) / self.tau}
        if self.sequences:
            world["train"] = self.chain(self.sequences, rng, world)
            world["seed"] = torch.randint(2**62, (1,), generator=rng)
        return world

    def chain(self, n: int, rng: torch.Generator, world: World) -> Tensor:
        """n sequences, (n, context + scored)."""
        tokens = torch.empty(n, self.context + self.scored, dtype=torch.long)
        tokens[:, : self.context] = torch.randint(self.d, (n, self.context), generator=rng)
        table = world["lag_matrices"].flatten(0, 1)  # a row for every lag and token
        lags = torch.arange(1, self.context + 1)
        for t in range(self.context, self.context + self.scored):
            law = F.embedding_bag(tokens[:, t - lags] + (lags - 1) * self.d, table, mode="sum").softmax(-1).cumsum(-1)
            uniform = torch.rand(n, 1, generator=rng) * law[:, -1:]
            tokens[:, t] = torch.searchsorted(law, uniform, right=True)[:, 0].clamp_(max=self.d - 1)
        return tokens

    def truths(self, tokens: Tensor, world: World) -> Tensor:
        """Log probabilities of the truncated truths A*_{1:i}, i = 1 .. groups, most important group first:
        (n, groups, scored, d)."""
        laws = self.ladder(world["A"].cpu())
        return torch.stack([self.along(tokens.cpu(), law / self.tau).log_softmax(-1) for law in laws], 1)

    # -- batches

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        return self._batch(self.chain(n, rng, world))

    def chosen(self, world: World, which: Tensor) -> Batch:
        return self._batch(world["train"][which])

    def held_out(self, n: int, rng: torch.Generator, world: World) -> Batch:
        batch = self.sample(n, rng, world)
        return batch._replace(extra=self.truths(batch.inputs, world))

    def _batch(self, tokens: Tensor) -> Batch:
        return Batch(tokens[:, :-1], tokens[:, self.context :], self.relevant(len(tokens)))

    # -- what is measured

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of a sequence's scored tokens, (n,)."""
        return mean_cross_entropy(outputs, targets)

    def measures(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Loss, loss above that of the truth, and KL( A*_{1:i} || model ) for every i."""
        losses = self.losses(outputs, batch.targets)
        if not batch.extra.numel():
            return {"loss": losses}
        truths = batch.extra  # (n, groups, scored, d)
        truth = -truths[:, -1].gather(-1, batch.targets[:, :, None])[..., 0].mean(1)
        kl = self.distance(truths, self.prediction(outputs)[:, None]).mean(-1)  # (n, groups)
        return {"loss": losses, **self.against_truths(losses, truth, kl)}

    def prediction(self, outputs: Tensor) -> Tensor:
        """Log probabilities."""
        return outputs.log_softmax(-1)

    def distance(self, theirs: Tensor, ours: Tensor) -> Tensor:
        """KL( theirs || ours )."""
        return (theirs.exp() * (theirs - ours)).sum(-1)
