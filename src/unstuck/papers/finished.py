"""What a store has of a figure's runs, read once however often the figure's table needs it."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from .figure import Profile, in_parts
from .lab import TieredRun, curves, finished


class Finished:
    """The runs of a figure in a profile: those wanted (`runs`), and a row for each that is finished (`results`)."""

    def __init__(self, figure: Any, profile: Profile, store: Path) -> None:
        self.profile, self.store = profile, store
        self.runs: list[TieredRun] = figure.runs(profile)
        self._also: Sequence[str] = getattr(figure, "ALSO", ())  # settings of the model that its table has too

    @cached_property
    def results(self) -> pd.DataFrame:
        return finished(self.runs, self.store, self._also)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """The curves of all finished runs, one under the other, with each run's sizes."""
        return curves(self.runs, self.store)

    def with_crossings(self, *columns: str) -> pd.DataFrame:
        """Columns of the curves, with the crossings of each run beside every row, as interpolated between evaluations
        on all clean sequences; without rows where no run is finished."""
        if self.curves.empty:
            return self.curves
        crossings = [c for c in self.results if c.startswith("crossing_")]
        return self.curves[["run_id", *columns]].merge(self.results[["run_id", *crossings]], on="run_id")

    def table(self, figure: Any) -> pd.DataFrame:
        """The figure's own table of its runs, or `results`; where it may be drawn in parts with how many are wanted."""
        if hasattr(figure, "data"):
            return figure.data(self)
        return self.results.assign(wanted=len(self.runs)) if in_parts(figure) else self.results
