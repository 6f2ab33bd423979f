"""recall-pairs: the exponent of the pairs where 5% is more than a guess.

A guess among the values of the context scores 1/pairs. Figure 4 right at 64 tokens, with 16, 24 and 32 pairs beside the
4 to 12 of fig4-law; and 24 pairs at 128 tokens.
"""

from unstuck.papers.emergence._recall import SMALL, UNTIL_50
from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, grid

#: Tier, tokens, pairs, seeds, steps at most.
CELLS: dict[Profile, list[tuple[int, int, list[int], list[int], int]]] = {
    "quick": [(1, 16, [3, 4], [0], 500)],
    "cpu": [
        (1, 64, [4, 6, 8, 12], [0, 1], 30_000),
        (1, 128, [8, 12], [0, 1], 30_000),
        (2, 64, [16], [0, 1], 60_000),
        (2, 64, [24], [0], 60_000),
        (3, 64, [32], [0], 100_000),
        (3, 128, [24], [0], 100_000),
    ],
    "paper": [(1, tokens, [16, 24, 32, 48], [0, 1, 2], 300_000) for tokens in (64, 128, 256)],
}


def runs(profile: Profile) -> list[TieredRun]:
    found = []
    for tier, tokens, pairs, seeds, steps in CELLS[profile]:
        fixed = {**(SMALL if profile == "quick" else {}), "task.tokens": tokens}
        fixed |= {"train.thresholds": UNTIL_50, "train.max_steps": steps}
        found += grid("recall", tier, seeds, fixed, task__pairs=pairs)
    return found
