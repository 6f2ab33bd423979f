"""Figure 8: the farthest group matters most, where the minimal model's heads look.

Importance reversed: m^2 : m : 1 from the farthest group to the nearest.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import mass_claims
from unstuck.papers.incremental._ladder import maps_data, maps_figure, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, changes={"task.importance": "far"})


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return maps_data(runs(profile)[0], store)


def draw(table: pd.DataFrame) -> Figure:
    return maps_figure(table)


def compare(table: pd.DataFrame) -> list[Claim]:
    return mass_claims(table)
