"""Figure 11: the minimal model with two layers.

27,000 sequences, spans of four lags, m = 1.8, learning rate 0.04.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims
from unstuck.papers.incremental._ladder import TWO_LAYERS, ladder_data, ladder_figure, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=TWO_LAYERS, quick={"model.layers": 2})


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return ladder_figure(table, "two layers")


def compare(table: pd.DataFrame) -> list[Claim]:
    return ladder_claims(table)
