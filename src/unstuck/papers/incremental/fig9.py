"""Figure 9: the farthest group matters most, loss and ladder.

The run of Figure 8. The rungs are the truths of the one, two and three most important groups, now the farthest first.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims
from unstuck.papers.incremental._ladder import ladder_data, ladder_figure, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, changes={"task.importance": "far"})


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return ladder_figure(table, "farthest group first")


def compare(table: pd.DataFrame) -> list[Claim]:
    return ladder_claims(table)
