"""recall-embedding: why recall takes us about twice as long as the paper's law says.

Steps to 5% over the paper's law, with 8 and with 12 pairs. Three things may explain it: the start of the token
embedding (that of a linear map, which shrinks with the vocabulary, or N(0, 1)), the rule for the query's slots
(recall-rule), and the learning rate, which the paper tunes.
"""

from unstuck.papers.emergence._recall import SMALL
from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, each_rate, grid

TO_5 = [0.05]


def runs(profile: Profile) -> list[TieredRun]:
    """Both starts of the embedding and the paper's rule (tier 1), and other learning rates at 12 pairs (tier 2)."""
    if profile == "quick":
        fixed = {**SMALL, "task.pairs": 4, "train.thresholds": [0.2], "train.max_steps": 500}
        return grid("recall", 1, [0], fixed, task__tokens=[16, 32], model__embedding=["linear", "normal"])
    tokens, pairs, steps = {
        "cpu": ([32, 64, 128], [8, 12], 30_000),
        "paper": ([64, 128, 256], [16, 32, 48], 200_000),
    }[profile]
    fixed = {"train.thresholds": TO_5, "train.max_steps": steps}
    starts = {"model__embedding": ["normal", "linear"]}
    found = grid("recall", 1, [0, 1], fixed, **starts, task__tokens=tokens, task__pairs=pairs)
    found += grid("recall", 1, [0, 1], {**fixed, "task.copies": "bernoulli"}, task__tokens=[64], task__pairs=pairs[:1])
    shorter = {**fixed, "train.max_steps": steps // 2}  # where 1e-4 has long got there
    rates = grid("recall", 2, [0], shorter, task__tokens=tokens[:2], task__pairs=pairs[-1:])
    return [*found, *each_rate(rates, [3e-4, 3e-5])]
