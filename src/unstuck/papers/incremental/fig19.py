"""Figure 19: the full Transformer trained by SGD, loss and ladder.

The run of Figure 18.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims
from unstuck.papers.incremental._ladder import SGD, full_runs, ladder_data, ladder_figure
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile, SGD)


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return ladder_figure(table, "SGD with momentum")


def compare(table: pd.DataFrame) -> list[Claim]:
    return ladder_claims(table)
