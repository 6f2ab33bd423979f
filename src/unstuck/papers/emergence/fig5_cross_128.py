"""fig5-cross-128: Figure 5 right at a larger vocabulary.

Recall with cross-sample repetition at 128 tokens and 8 pairs, tested on clean data: at 64 tokens (fig5-cross) the two
repeated tokens are already a large part of the vocabulary.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._recall import SMALL, UNTIL_90
from unstuck.papers.emergence._repetition import repetition_claims, repetition_data, repetition_figure
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun, grid, runs_in

IN_PARTS = True  # runs are compared one by one; the claims say how many are in


def runs(profile: Profile) -> list[TieredRun]:
    seeds, p, fixed = {
        "quick": ([0], [0.0, 0.5], {**SMALL, "task.tokens": 24, "task.pairs": 4, "train.max_steps": 500}),
        "cpu": ([0, 1], [0.0, 0.2, 0.3, 0.5], {"task.tokens": 128, "task.pairs": 8, "train.max_steps": 30_000}),
        "paper": ([0, 1, 2], [0.0, 0.2, 0.3, 0.5], {"task.tokens": 256, "task.pairs": 32, "train.max_steps": 300_000}),
    }[profile]
    return grid("recall", 2, seeds, {**fixed, "train.thresholds": UNTIL_90, "train.after": 500}, task__p=p)


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return repetition_data(runs(profile), store).assign(wanted=len(runs(profile)))


def draw(table: pd.DataFrame) -> Figure:
    return repetition_figure(table, "p")


def compare(table: pd.DataFrame) -> list[Claim]:
    return [*runs_in(table), *repetition_claims(table, "p", 0.0, factor=2)]
