"""Figure 5 left: recall with in-context repetition, tested on clean data.

Section 3.2. Accuracy on data without repetition for several B; each line is a run, dotted a guess among the context's
values. Figure 16 has the same runs on data like their training data.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._recall import plot_accuracy, repetition_claims, repetition_data, repetition_runs
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import legend_outside, panels


def runs(profile: Profile) -> list[TieredRun]:
    return repetition_runs(profile, "B")


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return repetition_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.6, height=3.7)
    plot_accuracy(ax, table, "B", "clean_accuracy")
    ax.set_ylabel("accuracy on clean data")
    ax.set_title(f"recall, {table['tokens'].iloc[0]} tokens, {table['pairs'].iloc[0]} pairs")
    legend_outside(picture, ax)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    return repetition_claims(table, "B", 1.0, "up to 4 times")
