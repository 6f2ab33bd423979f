"""What the dashboard shows of the runs in a directory, which is never written.

The page asks for the runs every two seconds. It gets the first rows, then the others page by page, then only rows that
have changed. One request at a time looks at the directory; the others are answered with what the last look has found.
"""

import re
import secrets
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.errors import BadInput
from unstuck.laws import fit_power_law
from unstuck.laws.tables import unscheduled
from unstuck.laws.tables import where as where_rows
from unstuck.store.index import RunIndex, RunTable
from unstuck.store.reading import Version, version_of
from unstuck.store.store import RunDirectory
from unstuck.view.columns import telling_columns
from unstuck.view.expected import forecast_run, seconds_per_step, sentence, zone_of
from unstuck.view.report.runs import MEASURES, attention_of, curve_of, formula_of, law_of, plain, rows_of

POINTS = 300  # of a curve
PAGE = 1000  # rows of an answer
MOST_RUNNING = 100  # runs in training whose forecasts are told
FRESH = 600.0  # seconds since its last row, within which a training that is watched counts as going on
SLOW = 0.1  # seconds of CPU time: a look at the directory that takes longer is followed by a rest,
REST, LONGEST_REST = 10, 5.0  # so many times as long, and at most so many seconds: a large store takes 0.1 to 0.2 cores


@dataclass(frozen=True)
class View:
    """The runs at one time: what the page is told of all of them."""

    runs: RunTable
    version: str
    columns: list[str]
    law: dict[str, str]

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
        self._name = secrets.token_hex(4)  # of this server in versions, which mean nothing to another
        self._view: View | None = None
        self._looking = threading.Lock()
        self._rest = 0.0  # the time before which the directory is not looked at again
        self._forecasts: dict[str, tuple[Version, str | None]] = {}  # of runs in training, by the state of their curve
        self._fitted: dict[str, dict[str, Any]] = {}  # the last answer, by the request and its runs

    def table(self, since: str = "", after: str = "") -> dict[str, Any]:
        """The first rows and all that belongs to them; after a run the next ones; since a version only rows that have
        changed, and the names of runs that are gone. Each answer names the columns: if they are others than before,
        rows that have been told before are worth nothing."""
        view = self._look()
        told: dict[str, Any] = {"version": view.version, "columns": view.columns, "total": len(view.runs.names)}
        if after:
            start = bisect_right(view.runs.names, after)
            return told | {"rows": view.rows(slice(start, start + PAGE))}
        told["running"] = self._running(view)
        known = re.fullmatch(rf"{self._name}\.([0-9]{{1,15}})", since)
        changes = None if known is None else view.runs.changes(int(known[1]))
        if changes is not None and len(changes[0]) <= PAGE:
            return told | {"rows": view.rows(changes[0]), "removed": changes[1]}
        return told | {"first": True, "rows": view.rows(slice(PAGE)), "measures": MEASURES, "law": view.law}

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
        columns = telling_columns(runs.frame) if runs.names else []
        return View(runs, f"{self._name}.{runs.version}", columns, _first_law(runs.frame))

    def _running(self, view: View) -> list[dict[str, Any]]:
        """Progress and forecast of the first runs in training."""
        if not view.runs.names:
            return []
        status = view.table["status"]
        watched = [run_id for run_id in view.table["run_id"][status == "watched"] if self._is_fresh(str(run_id))]
        running = view.table[(status == "running") | view.table["run_id"].isin(watched)][:MOST_RUNNING]
        told, known = [], {}
        for row in running.to_dict("records"):
            run_id, most = str(row["run_id"]), plain(row.get("train.max_steps", row.get("max_steps")))
            known[run_id] = self._forecast(run_id)
            step = int(plain(float(row["steps"])) or 0)
            told.append({"run_id": run_id, "step": step, "of": most, "forecast": known[run_id][1]})
        self._forecasts = known
        return told

    def _is_fresh(self, run_id: str) -> bool:
        try:
            return time.time() - (self.root / run_id / "curve.parquet").stat().st_mtime < FRESH
        except OSError:
            return False

    def run(self, run_id: str) -> RunDirectory:
        if len(run_id.encode(errors="replace")) > 255:
            raise BadInput("run", run_id, "the name of a run in this directory")
        path = (self.root / run_id).resolve() if re.fullmatch(r"[^/\\\0]{1,200}", run_id) else self.root
        run = RunDirectory(path)
        if path.parent != self.root or not (path.is_dir() or run.exists()):
            raise BadInput("run", run_id, "the name of a run in this directory")
        return run

    def curve(self, run_id: str) -> dict[str, Any]:
        """The measures of a run, and when it is expected to leave its plateau."""
        directory = self.run(run_id)
        curve = directory.curve()
        if curve is None or not len(curve):
            return {"run_id": run_id, "curve": {}, "expected": None}
        return {"run_id": run_id, "curve": curve_of(curve, POINTS), "expected": zone_of(directory)}

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
        table = unscheduled(where_rows(view.table, [c for c in conditions if c]))
        asked = repr((formula, conditions, sorted(sizes.items()), view.version))
        if asked not in self._fitted:
            self._fitted = {asked: self._law(table, formula, sizes)}
        return self._fitted[asked]

    def _law(self, table: pd.DataFrame, formula: str, sizes: dict[str, float]) -> dict[str, Any]:
        try:
            law = fit_power_law(table, formula)
            answer = law_of(table, formula, "these runs", law)
            if sizes:
                needed = list(dict.fromkeys(c for term in law.terms for c in term.columns))
                if not set(needed) <= set(sizes):
                    raise BadInput("predict", " ".join(sizes), f"a value for each of {', '.join(needed)}")
                said = law.predict_interval(sizes, level=0.9).iloc[0]
                answer["prediction"] = {k: plain(float(said[k])) for k in ("plateau", "low", "high")}
                answer["prediction"]["beyond"] = str(said["beyond"])
        except BadInput:
            raise
        except ValueError as e:
            raise BadInput("formula", formula, f"one that can be fitted to these runs ({e})") from e
        return answer

    def _forecast(self, run_id: str) -> tuple[Version, str | None]:
        """The forecast of a run in training, and the state of its curve; made anew if that has changed."""
        directory = RunDirectory(self.root / run_id)
        try:
            version = version_of(directory.path / "curve.parquet")
        except OSError:
            return (0, 0), None
        known = self._forecasts.get(run_id)
        if known is not None and known[0] == version:
            return known
        said = forecast_run(directory)
        return version, None if said is None else sentence(said, seconds_per_step(directory))


def _first_law(table: pd.DataFrame) -> dict[str, str]:
    """The runs of the most frequent task, and a formula of the sizes in which they differ."""
    if "task" not in table:
        return {}
    tasks = table["task"].astype(str)
    commonest = tasks.value_counts().index[0]
    return {"where": f"task={commonest}", "formula": formula_of(table[tasks == commonest]) or ""}
