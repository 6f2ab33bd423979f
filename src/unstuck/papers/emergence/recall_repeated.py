"""recall-repeated: how many tokens should cross-sample repetition repeat?

The paper repeats two tokens (C.1). 1, 2, 4 and 8 of them, with p = 0.5, beside no repetition.
"""

from unstuck.papers.emergence._recall import SMALL, UNTIL_90
from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, grid


def runs(profile: Profile) -> list[TieredRun]:
    fixed, repeated, seeds = {
        "quick": ({**SMALL, "task.tokens": 16, "task.pairs": 4, "train.max_steps": 500}, [1, 4], [0]),
        "cpu": ({"task.tokens": 64, "task.pairs": 8, "train.max_steps": 15_000}, [1, 2, 4, 8], [0, 1]),
        "paper": ({"task.tokens": 256, "task.pairs": 32, "train.max_steps": 300_000}, [1, 2, 4, 8], [0, 1, 2]),
    }[profile]
    fixed = {**fixed, "train.thresholds": UNTIL_90}
    return [
        *grid("recall", 2, seeds, {**fixed, "task.p": 0.5}, task__repeated=repeated),
        *grid("recall", 2, seeds, fixed),
    ]
