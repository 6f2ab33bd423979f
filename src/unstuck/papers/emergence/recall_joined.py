"""recall-joined: recall with one of its two attention patterns given.

Section 3.2 supposes that the exponent of the pairs is so high because two sparse attention patterns have to be learnt
together, each adding to it. With `task.joined` a key and its value stand at one position, so that nothing has to be
copied and only the selection is left. Does the exponent halve? Beside the runs of fig4-law and recall-pairs at 64
tokens.
"""

from unstuck.papers.emergence import recall_pairs
from unstuck.papers.emergence._recall import SMALL, UNTIL_50
from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, grid


def runs(profile: Profile) -> list[TieredRun]:
    fixed, pairs, more = {
        "quick": ({**SMALL, "task.tokens": 16, "train.max_steps": 500}, [3, 4], []),
        "cpu": ({"task.tokens": 64, "train.max_steps": 15_000}, [4, 8, 12, 16, 24], [4, 8]),
        "paper": ({"task.tokens": 256, "train.max_steps": 100_000}, [16, 24, 32, 48], [16, 24, 32, 48]),
    }[profile]
    joined = {**fixed, "task.joined": True, "train.thresholds": UNTIL_50}
    apart = [run for run in recall_pairs.runs(profile) if run.spec.task.tokens == fixed["task.tokens"]]
    return [
        *grid("recall", 2, [0], joined, task__pairs=pairs),
        *grid("recall", 2, [1], joined, task__pairs=more),  # a second seed
        *(run for run in apart if run.spec.task.pairs in pairs),
    ]
