"""Figure 12: cross-sample repetition and a Transformer's loss, on data with and without it.

B.2. Loss curves for several p: on data like the training data (left), and on clean data (right).
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun, curves, grid
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.theory.crossing import log_crossing


def runs(profile: Profile) -> list[TieredRun]:
    sizes, p, budget = {
        "quick": ({"task.T": 16, "task.d": 8}, [0.0, 0.2], 60),
        "cpu": ({"task.T": 64, "task.d": 32}, [0.0, 0.05, 0.1, 0.2, 0.4], 1500),
        "paper": ({"task.T": 256, "task.d": 64}, [0.0, 0.05, 0.1, 0.2, 0.4], 10_000),
    }[profile]
    return grid("regression", 3, [0], {**sizes, "train.after": budget}, task__p=p)


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    table = curves(runs(profile), store)
    return table if table.empty else table[["T", "d", "p", "seed", "step", "train_loss", "like_loss", "clean_loss"]]


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.4)
    for p, colour in shades(sorted(table["p"].unique())).items():
        curve = table[table["p"] == p]
        left.plot(curve["step"], curve["like_loss"], color=colour, label=f"p = {p:g}")
        right.plot(curve["step"], curve["clean_loss"], color=colour)
    for ax, title in ((left, "with repetition, like the training data"), (right, "clean data")):
        ax.set(xlabel="step", ylabel="test loss", ylim=(0, 0.75), title=title)
    legend_outside(picture, left)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    crossings = {}
    for p, curve in table.groupby("p"):
        crossings[p] = log_crossing(curve["step"][1:], curve["clean_loss"][1:], 0.4)
    done = {p: c for p, c in crossings.items() if c is not None}
    text = ", ".join(f"p = {p:g}: {c:.0f}" for p, c in done.items())
    faster = None if 0.0 not in done or len(done) < 2 else bool(min(c for p, c in done.items() if p > 0) < done[0.0])
    return [Claim("steps to clean loss 0.4", text or "none yet", "repetition accelerates emergence", faster)]
