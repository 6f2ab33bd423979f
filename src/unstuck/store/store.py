"""A directory of runs: DIR/<run_id>/ of those that are trained there, DIR/archive/ for many that have ended."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from unstuck.store.archive import ARCHIVE, archived_runs
from unstuck.store.reading import Damaged, warn_damaged
from unstuck.store.result import Result
from unstuck.store.run_directory import RunDirectory, holds_run
from unstuck.store.table import flatten

__all__ = ["Damaged", "Result", "RunDirectory", "Store", "flatten"]


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
        live = (path.name for path in self.path.iterdir() if _is_run(path)) if self.path.is_dir() else ()
        return map(self.run, sorted({*live, *archived_runs(self.archive)}))

    def table(self) -> pd.DataFrame:
        """One row a run: its keys (`task.T` is also called `T`), status, plateau_steps, steps, seconds."""
        return pd.DataFrame([row for run in self if (row := run.row()) is not None])


def _is_run(path: Path) -> bool:
    """Is there a run in a directory of its own?"""
    if path.name.startswith(".") or not path.name.isprintable():
        return False
    try:
        return holds_run(path)
    except OSError as e:  # no permission to look
        warn_damaged(path, type(e).__name__)
        return False
