"""Figure 12: cross-sample repetition and a Transformer's loss, on data with and without it.

B.2. Loss curves for several p: on data like the training data (left), and on clean data (right).
"""

import math
import statistics

import pandas as pd
from matplotlib.figure import Figure

from unstuck.columns import CLEAN_LOSS, LIKE_LOSS, STEP, TRAIN_LOSS
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.theory.crossing import log_crossing

MARGIN = 0.85  # seeds of one size differ by some 6%


def runs(profile: Profile) -> list[TieredRun]:
    sizes, p, budget = {
        "quick": ({"task.T": 16, "task.d": 8}, [0.0, 0.2], 60),
        "cpu": ({"task.T": 64, "task.d": 32}, [0.0, 0.05, 0.1, 0.2, 0.4], 1500),
        "paper": ({"task.T": 256, "task.d": 64}, [0.0, 0.05, 0.1, 0.2, 0.4], 10_000),
    }[profile]
    return grid("regression", 1, [0], {**sizes, "train.after": budget}, task__p=p)


def data(done: Finished) -> pd.DataFrame:
    columns = ["T", "d", "p", "seed", STEP, TRAIN_LOSS, LIKE_LOSS, CLEAN_LOSS]
    return done.curves if done.curves.empty else done.curves[columns]


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.4)
    for p, colour in shades(sorted(table["p"].unique())).items():
        curve = table[table["p"] == p]
        left.plot(curve["step"], curve[LIKE_LOSS], color=colour, label=f"p = {p:g}")
        right.plot(curve["step"], curve[CLEAN_LOSS], color=colour)
    for ax, title in ((left, "with repetition, like the training data"), (right, "clean data")):
        ax.set(xlabel="step", ylabel="test loss", ylim=(0, 0.75), title=title)
    legend_outside(picture, left)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    steps, last = {}, {}
    for p, curve in table.groupby("p"):
        steps[p] = log_crossing(curve["step"][1:], curve[CLEAN_LOSS][1:], 0.4) or math.inf
        last[p] = float(curve["step"].max())
    text = ", ".join(f"p = {p:g}: " + (f"{c:.0f}" if c < math.inf else f">{last[p]:.0f}") for p, c in steps.items())
    base = min(steps[0.0], last[0.0]) if 0.0 in steps else None
    others = [c for p, c in steps.items() if p > 0]
    agrees = None
    if base is not None and others:
        # The best of several of one seed each is faster by chance; so it has to be by a margin, and most of them too.
        clear = min(others) < MARGIN * base and statistics.median(others) < base
        slower = steps[0.0] < math.inf and min(others) > base
        agrees = True if clear else False if slower else None
    note = f"agrees: the best in less than {MARGIN:g} of the steps, and half of them faster"
    return [Claim("steps to clean loss 0.4", text, "repetition accelerates emergence", agrees, note)]
