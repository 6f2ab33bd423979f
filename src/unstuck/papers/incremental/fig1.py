"""Figure 1: the minimal model climbs a ladder of truncated truths while its heads compete, then cooperate.

Loss above that of the truth, KL to the truths of the one, two and three most important groups (shaded: the nearest),
and the specialisation index. 9,000 sequences, batch 3,000, m = 1.7.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._ladder import ladder_claims, ladder_data, ladder_figure, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, seeds=[0, 1])


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return ladder_figure(table, "minimal model")


def compare(table: pd.DataFrame) -> list[Claim]:
    return ladder_claims(table)
