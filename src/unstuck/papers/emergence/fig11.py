"""Figure 11: a Transformer's loss falls sharply after a plateau.

B.2. Loss curves at T = 128 for several d, and beside them the best head's attention to the relevant token.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.columns import STEP, TEST_LOSS, TRAIN_LOSS
from unstuck.curve import Curve
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.theory.crossing import log_crossing

from ._regression import PAPER_D, long_runs, paper_law

IN_PARTS = True  # a curve says as much without the others


def runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        return grid("regression", 1, [0], {"train.after": 60}, task__T=[16], task__d=[8, 16])
    long = grid("regression", 3, [0], {"train.after": 5000}, task__T=[128], task__d=PAPER_D[:4])
    return long if profile == "paper" else [*long_runs(), *long]


def data(done: Finished) -> pd.DataFrame:
    """Of each size the longest run that is finished."""
    if done.curves.empty:
        return done.curves
    table = done.curves.drop_duplicates(["run_id", STEP])
    wanted = len({run.spec.run_id for run in done.runs})
    found = table[["run_id", "T", "d", "seed", STEP, TRAIN_LOSS, TEST_LOSS]]
    return found.assign(best_head=Curve.of(table).best("attention"), wanted=wanted)


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.4)
    for d, colour in shades(sorted(table["d"].unique())).items():
        curve = table[table["d"] == d]
        left.plot(curve["step"], curve[TEST_LOSS], color=colour, label=f"d = {d}")
        right.plot(curve["step"], curve["best_head"], color=colour)
    left.axhline(0.1, color="#999999", lw=0.8, ls=":")
    left.set(xlabel="step", ylabel="test loss", ylim=(0, 0.75), title=f"Transformer, T = {table['T'].iloc[0]}")
    right.set(xlabel="step", ylabel="best head's attention to the relevant token", ylim=(0, 1))
    legend_outside(picture, left)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims, drops, lasted = runs_in(table), [], []
    for d, curve in table.groupby("d"):
        start, end = (log_crossing(curve["step"][1:], curve[TEST_LOSS][1:], x) for x in (0.4, 0.1))
        if start is not None and end is not None:
            drops.append((end - start) / end)
            lasted.append((d, end, paper_law(curve["T"].iloc[0], d)))
    if not drops:
        return [*claims, Claim("sharp transition", "no run has crossed yet", "sharp", None)]
    text = f"from loss 0.4 to 0.1 in {np.min(drops):.0%} to {np.max(drops):.0%} of the plateau"
    ours = ", ".join(f"d = {d}: {steps:.0f}" for d, steps, _ in lasted)
    law = ", ".join(f"{steps:.0f}" for _, _, steps in lasted)
    return [
        *claims,
        Claim("sharp transition", text, "sharp phase transition", bool(max(drops) < 0.35), "sharp: below 35%"),
        Claim("plateau, beside the paper's law 0.76 d^1.29 T^0.80", ours, law, None, "one seed"),
    ]
