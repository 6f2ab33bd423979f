"""Figure 15: groups that overlap, three heads.

Spans of four lags, each two lags after the one before.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import mass_claims
from unstuck.papers.incremental._ladder import OVERLAP, QUICK_OVERLAP, maps_data, maps_figure, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=OVERLAP, quick=QUICK_OVERLAP)


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return maps_data(runs(profile)[0], store)


def draw(table: pd.DataFrame) -> Figure:
    return maps_figure(table)


def compare(table: pd.DataFrame) -> list[Claim]:
    return mass_claims(table)
