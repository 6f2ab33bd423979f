"""What the dashboard shows of the runs in a directory, which is never written.

The page asks every two seconds: on its first tab for the runs in training, on others for the rows of all runs. It gets
the first rows, then the others page by page, then only rows that have changed. One request at a time looks at the
directory; the others are answered with what the last look has found.
"""

import re
import secrets
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.errors import BadInput
from unstuck.store.index import RunIndex, RunTable
from unstuck.store.store import RunDirectory
from unstuck.view.attention_maps import attention_of
from unstuck.view.columns import telling_columns
from unstuck.view.dashboard.laws import first_law, law_answer
from unstuck.view.dashboard.live import Cards
from unstuck.view.expected import zone_of
from unstuck.view.heads import heads_of
from unstuck.view.marks import marks_of
from unstuck.view.plain import plain
from unstuck.view.report.runs import MEASURES, curve_of, rows_of, settings_of

POINTS = 300  # of a curve
PAGE = 1000  # rows of an answer
SLOW = 0.1  # seconds of CPU time: a look at the directory that takes longer is followed by a rest,
REST, LONGEST_REST = 10, 5.0  # so many times as long, and at most so many seconds: a large store takes 0.1 to 0.2 cores


@dataclass(frozen=True)
class View:
    """The runs at one time: what the page is given of all of them."""

    runs: RunTable
    version: str
    latest: str | None  # the run whose files were last written; of an archive, that with the last name

    @cached_property
    def columns(self) -> list[str]:
        return telling_columns(self.table) if self.runs.names else []

    @cached_property
    def law(self) -> dict[str, str]:
        """The law that the page begins with."""
        return first_law(self.table)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many runs have each status."""
        found = self.table["status"].astype(str).value_counts() if self.runs.names else pd.Series(dtype=int)
        return {str(status): int(n) for status, n in found.items()}

    @property
    def table(self) -> pd.DataFrame:
        return self.runs.frame

    def rows(self, places: slice | NDArray[np.int64]) -> list[list[Any]]:
        return rows_of(self.table.iloc[places], self.columns)


class Reader:
    """A directory of runs; nothing outside it is opened, whatever a name or a link says."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise BadInput(
                "directory", str(directory), "a directory that exists; `unstuck train regression --out DIR` makes one"
            )
        store = directory / "store"  # as in what `unstuck reproduce --out DIR` wrote
        self.root = (store if store.is_dir() else directory).resolve()
        self._index = RunIndex(self.root, links=False)
        self.name = f"{self.root.parent.name}/store" if self.root.name == "store" else self.root.name
        self._name = secrets.token_hex(4)  # of this server in versions, which mean nothing to another
        self._view: View | None = None
        self._looking = threading.Lock()
        self._rest = 0.0  # the time before which the directory is not looked at again
        self._cards = Cards(self.root)
        self._dealing = threading.Lock()
        self._fitted: dict[str, dict[str, Any]] = {}  # the last answer, by the request and its runs

    def table(self, since: str = "", after: str = "") -> dict[str, Any]:
        """The first rows and all that belongs to them; after a run the next ones; since a version only rows that have
        changed, and the names of runs that are gone. Each answer names the columns: if they are others than before,
        rows that were sent before are worth nothing."""
        view = self._look()
        answer: dict[str, Any] = {"version": view.version, "columns": view.columns, "total": len(view.runs.names)}
        if after:
            start = bisect_right(view.runs.names, after)
            return answer | {"rows": view.rows(slice(start, start + PAGE))}
        known = re.fullmatch(rf"{self._name}\.([0-9]{{1,15}})", since)
        changes = None if known is None else view.runs.changes(int(known[1]))
        if changes is not None and len(changes[0]) <= PAGE:
            return answer | {"rows": view.rows(changes[0]), "removed": changes[1]}
        first = {"first": True, "measures": MEASURES, "settings": settings_of(view.columns), "law": view.law}
        return answer | first | {"rows": view.rows(slice(PAGE))}

    def live(self) -> dict[str, Any]:
        """What the first page shows: the store, a card for each run in training, and the run that was last written."""
        view = self._look()
        with self._dealing:
            cards = self._cards.of(view.table)
        known = {"name": self.name, "version": view.version, "total": len(view.runs.names), "counts": view.counts}
        return known | {"running": cards, "latest": view.latest}

    def _look(self) -> View:
        """The runs as they are now, or as they were if another request looks at them now."""
        view = self._view
        if self._looking.acquire(blocking=view is None):
            try:
                if time.monotonic() >= self._rest:
                    begun = time.thread_time()
                    view = self._view = self._new_view()
                    took = time.thread_time() - begun
                    self._rest = time.monotonic() + min(REST * took if took > SLOW else 0.0, LONGEST_REST)
            finally:
                self._looking.release()
        assert self._view is not None
        return self._view if view is None else view

    def _new_view(self) -> View:
        runs = self._index.look()
        if self._view is not None and self._view.runs is runs:
            return self._view
        latest = self._index.latest() or (runs.names[-1] if runs.names else None)
        return View(runs, f"{self._name}.{runs.version}", latest)

    def run(self, run_id: str) -> RunDirectory:
        if len(run_id.encode(errors="replace")) > 255:
            raise BadInput("run", run_id, "the name of a run in this directory")
        path = (self.root / run_id).resolve() if re.fullmatch(r"[^/\\\0]{1,200}", run_id) else self.root
        run = RunDirectory(path)
        if path.parent != self.root or not (path.is_dir() or run.exists()):
            raise BadInput("run", run_id, "the name of a run in this directory")
        return run

    def curve(self, run_id: str) -> dict[str, Any]:
        """The measures of a run, when it left its plateau or is expected to, and levels to read it against."""
        directory = self.run(run_id)
        curve = directory.curve()
        if curve is None or not len(curve):
            return {"run_id": run_id, "curve": {}, "loss": None, "expected": None, "left": None, "marks": []}
        result = directory.result()
        left = None if result is None else plain(result.plateau_steps)
        answer = {"run_id": run_id, "curve": curve_of(curve, POINTS), "loss": curve.loss_name, "left": left}
        return answer | {"expected": zone_of(directory), "marks": marks_of(directory.row() or {}, curve)}

    def heads(self, run_id: str, measure: str) -> dict[str, Any]:
        """A measure of every head of a run over training."""
        directory = self.run(run_id)
        return {"run_id": run_id} | heads_of(directory.curve(), directory.row() or {}, measure, POINTS)

    def attention(self, run_id: str) -> dict[str, Any]:
        found, _ = attention_of([self.run(run_id)])
        return found[0] if found else {"run_id": run_id, "steps": []}

    def law(self, formula: str, conditions: list[str], sizes: dict[str, float]) -> dict[str, Any]:
        """A law of the runs that meet all conditions, its residuals, and its prediction for a size."""
        view = self._look()
        if not view.runs.names:
            raise BadInput(
                "directory", self.root.name, "one with finished runs; `unstuck sweep ... --out DIR` makes them"
            )
        asked = repr((formula, conditions, sorted(sizes.items()), view.version))
        if asked not in self._fitted:
            self._fitted = {asked: law_answer(view.table, formula, [c for c in conditions if c], sizes)}
        return self._fitted[asked]
