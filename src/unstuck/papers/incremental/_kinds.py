"""The two kinds of figure that paper 2 has of its runs: where heads look, and how the ladder is climbed.

A figure's file says which runs, and ends in `data, draw, compare = maps(runs)` or `ladder(runs, title)`.
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims, mass_claims
from unstuck.papers.incremental._ladder import ladder_data, ladder_figure, maps_data, maps_figure
from unstuck.papers.lab import TieredRun

Runs = Callable[[Profile], list[TieredRun]]
Kind = tuple[Callable[..., pd.DataFrame], Callable[[pd.DataFrame], Figure], Callable[[pd.DataFrame], list[Claim]]]


def maps(runs: Runs) -> Kind:
    """Mean attention of each head of the first run, at several steps."""

    def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
        return maps_data(runs(profile)[0], store)

    return data, maps_figure, mass_claims


def ladder(runs: Runs, title: str, *, by: str = "seed", apart: bool = True) -> Kind:
    """Loss, and distance to each rung, over training, of runs that differ in `by`; `apart` as in `ladder_claims`."""

    def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
        return ladder_data(runs(profile), store)

    def draw(table: pd.DataFrame) -> Figure:
        return ladder_figure(table, title, by)

    def compare(table: pd.DataFrame) -> list[Claim]:
        return ladder_claims(table, apart=apart)

    return data, draw, compare
