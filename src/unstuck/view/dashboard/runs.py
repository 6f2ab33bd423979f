"""What the dashboard shows of the runs in a directory: read at every request, never written."""

import re
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.errors import BadInput
from unstuck.laws import fit_power_law
from unstuck.laws.tables import unscheduled
from unstuck.laws.tables import where as where_rows
from unstuck.store.store import RunDirectory, Store
from unstuck.view.expected import forecast_run, seconds_per_step, sentence, zone_of
from unstuck.view.report.runs import MEASURES, attention_of, curve_of, formula_of, law_of, plain, table_of

POINTS = 300  # of a curve


class Reader:
    """A directory of runs; nothing outside it is opened, whatever a name or a link says."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise BadInput(
                "directory", str(directory), "a directory that exists; `unstuck train regression --out DIR` makes one"
            )
        store = directory / "store"  # as in what `unstuck reproduce --out DIR` wrote
        self.root = (store if store.is_dir() else directory).resolve()
        self._rows: dict[str, tuple[list[int], dict[str, Any] | None]] = {}  # by run, with the age of its files
        self._fitted: dict[str, dict[str, Any]] = {}  # the last answer, by the request and its runs

    def table(self) -> dict[str, Any]:
        """Columns and rows of all runs; progress and forecast of those in training; measures; a first law."""
        table = self._table()
        if table.empty:
            return {"columns": [], "rows": [], "running": [], "measures": MEASURES, "law": {}}
        columns, rows = table_of(table)
        running = []
        for run_id in table.loc[table["status"] == "running", "run_id"]:
            directory = self.run(str(run_id))
            spec, status, said = directory.spec() or {}, directory.status() or {}, forecast_run(directory)
            running.append(
                {
                    "run_id": str(run_id),
                    "step": int(status.get("step", 0)),
                    "of": plain(spec.get("train", {}).get("max_steps")),
                    "forecast": None if said is None else sentence(said, seconds_per_step(directory)),
                }
            )
        return {"columns": columns, "rows": rows, "running": running, "measures": MEASURES, "law": _first_law(table)}

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
        table = self._table()
        if table.empty:
            raise BadInput(
                "directory", self.root.name, "one with finished runs; `unstuck sweep ... --out DIR` makes them"
            )
        table = unscheduled(where_rows(table, [c for c in conditions if c]))
        asked = f"{formula} {sorted(sizes.items())} {pd.util.hash_pandas_object(table.astype(str)).sum()}"
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

    def _table(self) -> pd.DataFrame:
        """A row for each run; only files that have changed are read again."""
        rows = []
        for directory in Store(self.root):
            try:
                inside = self.run(directory.path.name)
            except BadInput:  # a link that leads out of the directory
                continue
            ages = [_age(inside.path / name) for name in ("spec.yaml", "status.json")]
            known = self._rows.get(inside.path.name)
            if known is None or known[0] != ages or (known[1] or {}).get("status") == "running":
                known = (ages, inside.row())
                self._rows[inside.path.name] = known
            if known[1] is not None:
                rows.append(known[1])
        return pd.DataFrame(rows)


def _age(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


def _first_law(table: pd.DataFrame) -> dict[str, str]:
    """The runs of the most frequent task, and a formula of the sizes in which they differ."""
    if "task" not in table:
        return {}
    tasks = table["task"].astype(str)
    commonest = tasks.value_counts().index[0]
    return {"where": f"task={commonest}", "formula": formula_of(table[tasks == commonest]) or ""}
