"""Figure 12: the full Transformer with two layers.

Spans of four lags; loss and ladder.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims
from unstuck.papers.incremental._ladder import full_runs, ladder_data, ladder_figure
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile, {"model.layers": 2})


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return ladder_figure(table, "full model, two layers")


def compare(table: pd.DataFrame) -> list[Claim]:
    return ladder_claims(table)
