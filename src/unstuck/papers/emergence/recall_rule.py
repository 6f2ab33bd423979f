"""recall-rule: recall by the paper's rule for the slots of the query, beside ours.

C.1 puts the query into each slot with probability B/pairs, so that with B = 1 a third of the sequences do not hold it;
our default puts it into exactly one. Both are trained on their own rule and tested on ours, where the query is always
there.
"""

from unstuck.papers.emergence._recall import SMALL, UNTIL_50
from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, grid

RULES = ["always", "bernoulli"]


def runs(profile: Profile) -> list[TieredRun]:
    sizes, seeds = {
        "quick": ({**SMALL, "task.tokens": 16, "task.pairs": 4, "train.max_steps": 500}, [0]),
        "cpu": ({"task.tokens": 64, "task.pairs": 8, "train.max_steps": 30_000}, [0, 1]),
        "paper": ({"task.tokens": 256, "task.pairs": 32, "train.max_steps": 200_000}, [0, 1, 2]),
    }[profile]
    return grid("recall", 1, seeds, {**sizes, "train.thresholds": UNTIL_50}, task__copies=RULES)
