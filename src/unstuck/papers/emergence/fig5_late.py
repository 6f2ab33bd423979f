"""fig5-late: does strong repetition come back, if one waits?

Section 3.2 says that runs with too much repetition first overfit, and generalise late. Figure 5's stronger ones, four
times as long, tested on clean data and on data like their training data.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._recall import (
    SMALL,
    UNTIL_90,
    first_step,
    plot_accuracy,
    repetition_data,
    step_list,
)
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import panels


def runs(profile: Profile) -> list[TieredRun]:
    sizes, steps = {
        "quick": ({**SMALL, "task.tokens": 16, "task.pairs": 4}, 800),
        "cpu": ({"task.tokens": 64, "task.pairs": 8}, 60_000),
        "paper": ({"task.tokens": 256, "task.pairs": 32}, 1_000_000),
    }[profile]
    fixed = {**sizes, "train.thresholds": UNTIL_90, "train.max_steps": steps, "train.at_least": steps}
    return [*grid("recall", 3, [0], fixed, task__B=[2, 4]), *grid("recall", 3, [0], fixed, task__p=[0.5, 0.9])]


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    table = repetition_data(runs(profile), store)
    if table.empty:
        return table
    names = np.where(table["p"] == 0, "B = " + table["B"].map("{:g}".format), "p = " + table["p"].map("{:g}".format))
    return table.assign(repetition=names)


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.6)
    for ax, column, title in zip(
        axes, ("clean_accuracy", "like_accuracy"), ("clean data", "training-like data"), strict=True
    ):
        plot_accuracy(ax, table, "repetition", column)
        ax.set_ylabel(f"accuracy on {title}")
    axes[1].legend(loc="lower right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    parts, late = [], []
    for name, run in table.groupby("repetition"):
        like, clean = (first_step(run, f"{kind}_accuracy", 0.9) for kind in ("like", "clean"))
        end = run.loc[run["step"] >= 0.9 * run["step"].max(), "clean_accuracy"].mean()
        last = run["step"].max()
        parts.append(f"{name}: {step_list([like], last)} and {step_list([clean], last)}, {end:.2f} at the end")
        late.append(bool(np.isfinite(clean) and clean > 2 * like))
    text = "; ".join(parts)
    return [Claim("steps to 90% on training-like and on clean data", text, "generalises late", any(late) or None)]
