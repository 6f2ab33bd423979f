"""recall-pairs: the exponent of the pairs where 5% is more than a guess.

A guess among the values of the context scores 1/pairs, so that 5% says something from 20 pairs on. Figure 4 right at 64
tokens with 16, 24 and 32 pairs beside the 4 to 12 of fig4-law, and 24 pairs at 128 tokens.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import fit_or_none, plot_plateaus
from unstuck.papers.style import PAPER_GREY, legend_outside, panels

from ._recall import SMALL, UNTIL_50, at_another_level, crossing, paper_law, step_list
from ._regression import law_claims, local_exponents

IN_PARTS = True  # sizes are compared with their neighbours; the claims say how many runs are in
MANY = 12  # pairs from which on the exponent is fitted
MORE_PAIRS = "32 and 48 pairs with three seeds would tell"
#: Tier, tokens, pairs, seeds, steps at most.
CELLS: dict[Profile, list[tuple[int, int, list[int], list[int], int]]] = {
    "quick": [(1, 32, [3, 4], [0], 300)],
    "cpu": [
        (1, 64, [4, 6, 8, 12], [0, 1], 30_000),
        (1, 128, [8, 12], [0, 1], 30_000),
        (2, 64, [16], [0, 1], 60_000),
        (2, 64, [24], [0], 60_000),
        (4, 64, [32], [0], 100_000),
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


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.4, height=3.9)
    for ax, threshold in zip(axes, UNTIL_50, strict=True):
        part = crossing(table, threshold)
        plot_plateaus(ax, part, "pairs", "tokens", y="steps")
        ax.set_title(f"to {threshold:.0%} accuracy")
        if threshold == 0.05:
            for i, (tokens, rows) in enumerate(part.groupby("tokens")):
                pairs = np.array(sorted(rows["pairs"].unique()))
                label = "paper's law" if i == 0 else None
                ax.plot(pairs, paper_law(tokens, pairs), ":", lw=1.2, color=PAPER_GREY, label=label)
    legend_outside(picture, axes[0])
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = runs_in(table)
    few = table["tokens"].min()
    for threshold in UNTIL_50:
        part = crossing(table, threshold)
        one, where = part[part["tokens"] == few], f", to {threshold:.0%}, {few} tokens"
        claims.append(local_exponents(one, "pairs", ("tokens", "pairs"), where))
        many = one[one["pairs"] >= MANY]
        if len(set(many["pairs"])) > 2:
            above = f"{where}, from {MANY} pairs"
            found = law_claims(fit_or_none(many, "pairs"), {"pairs": 2.25}, where=above, decides=MORE_PAIRS)
            claims += found if threshold == 0.05 else at_another_level(found)
    return [*claims, *_over_law(crossing(table, 0.05))]


def _over_law(part: pd.DataFrame) -> list[Claim]:
    """Steps to 5% over the paper's law, for each size."""
    shown = []
    for (tokens, pairs), rows in part.groupby(["tokens", "pairs"]):
        there = rows["status"] == "emerged"
        steps = list(rows["plateau_steps"].where(there, np.inf) / paper_law(tokens, pairs))
        ends = list(rows["steps"] / paper_law(tokens, pairs))
        shown.append(f"{tokens} tokens, {pairs} pairs: {step_list(steps, ends, digits=2)}")
    note = "a guess scores more below 20 pairs"
    return [Claim("steps to 5% over the paper's law, seeds in order", "; ".join(shown), "1", None, note)]
