"""Figure 3 left: the full Transformer climbs the ladder.

KL to the truths of the one, two and three most important groups, the run of Figure 2. The right panel, KL to models of
restricted context, is fig3-right.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims
from unstuck.papers.incremental._ladder import full_runs, ladder_data, ladder_figure
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile)


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return ladder_figure(table, "full model")


def compare(table: pd.DataFrame) -> list[Claim]:
    return ladder_claims(table)
