"""A task that cannot be learnt, as a file that `unstuck train` takes."""

import torch

from unstuck.tasks.single_location import SingleLocation
from unstuck.tasks.task import Batch, World, config


@config
class Shuffled(SingleLocation):
    """Every target belongs to another sequence of the batch."""

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        batch = super().sample(n, rng, world)
        return batch._replace(targets=batch.targets.roll(1, 0))
