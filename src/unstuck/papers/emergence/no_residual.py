"""no-residual: the law without residual connections.

Section 3.2 supposes that the exponent of the vocabulary is low because residual connections do most of what the
feedforward layers would have to learn. Without them (`model.skip=false`): regression on the small sizes of Figure 3
left, with and without, and recall of 4 pairs.
"""

from typing import Any

from unstuck.papers.emergence._recall import SMALL, UNTIL_50
from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, grid

INITS = ["default", "xavier"]  # of recall: without residual connections the first may not learn it


def runs(profile: Profile) -> list[TieredRun]:
    T, d, tokens, seeds, recall = {
        "quick": ([8, 16], [4], [16], [0], {**SMALL, "train.max_steps": 100}),
        "cpu": ([16, 32, 64], [8, 16, 32], [16, 32, 64], [0, 1], {"train.max_steps": 12_000}),
        "paper": ([16, 32, 64, 128, 256], [8, 16, 32, 64, 128], [32, 64, 128], [0, 1, 2], {"train.max_steps": 100_000}),
    }[profile]
    recall = {**recall, "task.pairs": 4, "train.thresholds": UNTIL_50}
    both: dict[str, list[Any]] = {"model__skip": [False, True]}
    return [
        *grid("regression", 2, seeds, **both, task__T=T, task__d=d),
        *grid("recall", 2, seeds[:1], recall, **both, model__init=INITS, task__tokens=tokens),
    ]
