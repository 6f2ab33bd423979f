"""The regression variant of paper 2's chain, used by its theory: Gaussian tokens, squared loss."""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ._lagged import Lagged
from .task import Batch, World, config


@config
class MarkovRegression(Lagged):
    """Predict y_t = Σ_k A_k Σ_{i in I(k)} alpha_i x_{t-i} + noise from Gaussian tokens x.

    The groups of lags are those of `markov`. The prediction is not fed back as the next token: with features larger
    than 1 the chain would grow without bound, and the theory assumes independent tokens. The KL divergence of two
    predictions is half their squared distance over the variance of the noise, so the ladder has the same column names.
    """

    version: ClassVar[int] = 2  # raised when what is drawn changes
    evaluation: ClassVar[int] = 1000
    probe: ClassVar[int] = 1000

    noise: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 1.0  # standard deviation, of each coordinate

    def world(self, rng: torch.Generator) -> World:
        A = self.feature_matrices(rng)
        world = {"A": A, "lag_matrices": self.lag_matrices(A, range(self.groups))}
        if self.sequences:
            whole = self.sample(self.sequences, rng, world)
            world |= {"train": whole.inputs, "train_targets": whole.targets}
            world["seed"] = torch.randint(2**62, (1,), generator=rng)
        return world

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        x = torch.randn(n, self.T, self.d, generator=rng)
        y = self.along(x, world["lag_matrices"]) + self.noise * torch.randn(n, self.scored, self.d, generator=rng)
        return Batch(x, y, self.relevant(n))

    def chosen(self, world: World, which: Tensor) -> Batch:
        return Batch(world["train"][which], world["train_targets"][which], self.relevant(len(which)))

    def held_out(self, n: int, rng: torch.Generator, world: World) -> Batch:
        """With the predictions of A*_{1:i}, (n, groups, scored, d)."""
        batch = self.sample(n, rng, world)
        return batch._replace(extra=torch.stack([self.along(batch.inputs, law) for law in self.ladder(world["A"])], 1))

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Half the squared error, averaged over scored positions."""
        return 0.5 * (outputs - targets).square().sum(-1).mean(1)

    def measures(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        losses = self.losses(outputs, batch.targets)
        if not batch.extra.numel():
            return {"loss": losses}
        truth = self.losses(batch.extra[:, -1], batch.targets)
        kl = self.distance(batch.extra, outputs[:, None]).mean(-1)
        return {"loss": losses, **self.against_truths(losses, truth, kl)}

    def distance(self, theirs: Tensor, ours: Tensor) -> Tensor:
        """KL divergence of two predictions with the task's noise."""
        return super().distance(theirs, ours) / self.noise**2
