"""Figure 17: groups that overlap, loss and ladder for three and four heads.

The runs of Figures 15 (strong line) and 16 (faint).
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims
from unstuck.papers.incremental._ladder import OVERLAP, QUICK_OVERLAP, ladder_data, ladder_figure, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=OVERLAP, quick=QUICK_OVERLAP, model__heads=[3, 4])


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return ladder_figure(table, "overlapping groups", by="heads")


def compare(table: pd.DataFrame) -> list[Claim]:
    return ladder_claims(table, apart=False)
