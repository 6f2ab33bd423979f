"""Figure 5 left: recall with in-context repetition, tested on clean data.

Section 3.2. Accuracy on data without repetition for several B; each line is a run, dotted a guess among the context's
values. Figure 16 has the same runs on data like their training data.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._repetition import repetition_claims, repetition_data, repetition_figure, repetition_runs
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return repetition_runs(profile, "B")


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return repetition_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return repetition_figure(table, "B")


def compare(table: pd.DataFrame) -> list[Claim]:
    return repetition_claims(table, "B", 1.0, factor=4)
