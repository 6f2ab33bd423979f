"""Figure 2: the full Transformer, where its heads look over training.

Mean attention of each head at steps 0, 60, 300 and 1,000, one colour a head; spans of four lags.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import mass_claims
from unstuck.papers.incremental._ladder import full_runs, maps_data, maps_figure
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile)


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return maps_data(runs(profile)[0], store)


def draw(table: pd.DataFrame) -> Figure:
    return maps_figure(table)


def compare(table: pd.DataFrame) -> list[Claim]:
    return mass_claims(table)
