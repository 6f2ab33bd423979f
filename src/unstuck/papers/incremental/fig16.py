"""Figure 16: groups that overlap, four heads.

As Figure 15 with one head more than groups.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import mass_claims
from unstuck.papers.incremental._ladder import OVERLAP, QUICK_OVERLAP, maps_data, maps_figure, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes={**OVERLAP, "model.heads": 4}, quick={**QUICK_OVERLAP, "model.heads": 4})


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return maps_data(runs(profile)[0], store)


def draw(table: pd.DataFrame) -> Figure:
    return maps_figure(table)


def compare(table: pd.DataFrame) -> list[Claim]:
    return mass_claims(table)
