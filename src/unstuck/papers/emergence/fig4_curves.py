"""Figure 4 left and middle: recall emerges suddenly, and later with more pairs.

Section 3.2. Accuracy and loss on clean data for several numbers of pairs and one vocabulary, without repetition. The
second seed is that of Figure 4 right, which ends at 50%.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unstuck.columns import CLEAN_ACCURACY, CLEAN_LOSS, EVALUATED, STEP
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import legend_outside, panels, shades

from ._recall import SMALL, UNTIL_50, UNTIL_90, crossed, first_step, step_list


def runs(profile: Profile) -> list[TieredRun]:
    pairs, fixed = {
        "quick": ([3, 4], {**SMALL, "task.tokens": 16}),
        "cpu": ([4, 6, 8, 12], {"task.tokens": 64, "train.max_steps": 30_000}),
        "paper": ([8, 16, 32, 48], {"task.tokens": 256, "train.max_steps": 200_000}),
    }[profile]
    runs = grid("recall", 1, [0], {**fixed, "train.thresholds": UNTIL_90}, task__pairs=pairs)
    if profile != "quick":
        runs += grid("recall", 1, [1], {**fixed, "train.thresholds": UNTIL_50}, task__pairs=pairs)
    return runs


def data(done: Finished) -> pd.DataFrame:
    sizes = ["tokens", "pairs", "layer_norm", "seed"]
    return done.with_crossings(*sizes, STEP, EVALUATED, CLEAN_LOSS, CLEAN_ACCURACY)


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.4)
    for pairs, colour in shades(sorted(table["pairs"].unique())).items():
        for i, (_, curve) in enumerate(table[table["pairs"] == pairs].groupby("seed")):
            label = f"{pairs} pairs" if i == 0 else None
            left.plot(curve["step"], curve[CLEAN_ACCURACY], color=colour, lw=1.2, label=label)
            right.plot(curve["step"], curve[CLEAN_LOSS], color=colour, lw=1.2)
    left.set(xlabel="step", ylabel="test accuracy", ylim=(0, 1.02))
    right.set(xlabel="step", ylabel="test loss (cross-entropy)", ylim=(0, None))
    for ax in (left, right):
        ax.xaxis.set_major_locator(MaxNLocator(5))
    left.set_title(f"recall, {table['tokens'].iloc[0]} tokens")
    legend_outside(picture, left)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    half: dict[int, list[float]] = {}  # steps to 50%, by seed, for rising numbers of pairs
    shown, widths = [], []
    for pairs, rows in table.groupby("pairs"):
        steps, lasts = [], []
        for seed, curve in rows.groupby("seed"):
            at_half, high = crossed(curve, 0.5), first_step(curve, CLEAN_ACCURACY, 0.8)
            half.setdefault(int(str(seed)), []).append(at_half)
            steps.append(at_half)
            lasts.append(float(curve["step"].max()))
            if np.isfinite(high):
                widths.append((high - at_half) / high)
        shown.append(f"{pairs} pairs: {step_list(steps, lasts)}")
    if not np.isfinite([step for steps in half.values() for step in steps]).any():
        return [Claim("emergence", "no run has got there yet", "sudden", None)]
    ordered = [_rises(steps) for steps in half.values() if len(steps) > 1]
    later = None if not ordered or len(set(ordered)) > 1 else ordered[0]
    why = "the order is not the same for all seeds" if len(set(ordered)) > 1 else ""
    claims = [Claim("steps to 50% accuracy, seeds in order", "; ".join(shown), "later with more pairs", later, why)]
    if widths:
        sharp = f"from 50% to 80% in {min(widths):.0%} to {max(widths):.0%} of the steps"
        if more := sum(map(len, half.values())) - len(widths):
            sharp += f", {len(widths)} runs ({more} more end before 80%)"
        agrees = bool(max(widths) < 0.35)
        claims.append(Claim("sharp transition", sharp, "sharp phase transition", agrees, "sharp: below 35%"))
    return claims


def _rises(steps: list[float]) -> bool:
    """Does each come later than the one before, and only the last ones never?"""
    return steps == sorted(steps) and bool(np.all(np.diff([s for s in steps if np.isfinite(s)]) > 0))
