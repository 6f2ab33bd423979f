"""A directory of runs: DIR/<run_id>/ of those that are trained there, DIR/archive/ for many that have ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from unstuck.store.archive import ARCHIVE, archived_runs
from unstuck.store.index import RunIndex
from unstuck.store.reading import Damaged
from unstuck.store.result import Result
from unstuck.store.run_directory import RunDirectory
from unstuck.store.scan import scan
from unstuck.store.table import flatten

if TYPE_CHECKING:
    import pandas as pd

CACHE = ".cache"  # within a store: tokens of a corpus

__all__ = ["CACHE", "Damaged", "Result", "RunDirectory", "Store", "flatten"]


class Store:
    """A directory of runs, and of shards with archived ones."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def archive(self) -> Path:
        """Where its shards are."""
        return self.path / ARCHIVE

    def run(self, run_id: str) -> RunDirectory:
        return RunDirectory(self.path / run_id)

    def __iter__(self) -> Iterator[RunDirectory]:
        return map(self.run, sorted({*scan(self.path), *archived_runs(self.archive)}))

    def table(self) -> "pd.DataFrame":
        """One row a run: its keys (`task.T` is also called `T`), status, plateau_steps, steps, seconds. Of a large
        store only runs that have changed are read; the others are in an index in the user's cache directory."""
        return RunIndex(self.path).look().frame
