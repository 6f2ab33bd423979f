"""Figure 13: lags of a group that do not weigh the same, where the minimal model's heads look.

Weights 0.7 and 0.3 inside a span, scaled to a mean of one.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import mass_claims
from unstuck.papers.incremental._ladder import UNEVEN, maps_data, maps_figure, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=UNEVEN, quick={"task.span": 2, **UNEVEN})


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return maps_data(runs(profile)[0], store)


def draw(table: pd.DataFrame) -> Figure:
    return maps_figure(table)


def compare(table: pd.DataFrame) -> list[Claim]:
    return mass_claims(table)
