"""A card for each run in training: how far it is on its plateau, when it is expected to leave, and what says so."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.forecast import Forecast, Outcome
from unstuck.store.processes import is_gone
from unstuck.store.reading import Version, version_of
from unstuck.store.store import RunDirectory
from unstuck.view.columns import telling_columns
from unstuck.view.expected import expected, forecast_run, seconds_per_step, sentence
from unstuck.view.heads import head_name, title
from unstuck.view.plain import plain
from unstuck.view.report.runs import SIZES, settings_of

MOST = 100  # cards
FRESH = 600.0  # seconds since its last rows were saved, within which a training that is watched may go on
LATE = 5.0  # the same, as a multiple of the longest time between two savings so far
LONGEST = 86400.0  # seconds after which none counts as going on
Forecasts = dict[str, tuple[Version, Forecast | None]]


@dataclass
class Cards:
    """The runs in training of a store. A forecast is made again only when the curve has changed."""

    root: Path
    _forecasts: Forecasts = field(default_factory=dict)

    def of(self, table: pd.DataFrame) -> list[dict[str, Any]]:
        """The cards of the first runs in training."""
        if "status" not in table:
            return []
        watched = filter(self._goes_on, map(str, table["run_id"][table["status"] == "watched"]))
        running = table[(table["status"] == "running") | table["run_id"].isin(list(watched))][:MOST]
        names = _naming(running)
        known = {run_id: self._forecast(run_id) for run_id in map(str, running["run_id"])}
        self._forecasts = known
        cards = []
        for row in running.to_dict("records"):
            run_id = str(row["run_id"])
            settings = {name: value for name in names if (value := plain(row[name])) is not None}
            most = plain(row.get("train.max_steps", row.get("max_steps")))
            step = int(plain(float(row["steps"])) or 0)
            card = self._card(run_id, known[run_id][1], step)
            cards.append({"run_id": run_id, "settings": settings, "step": step, "of": most} | card)
        return cards

    def _goes_on(self, run_id: str) -> bool:
        """Does a training that is watched go on? Not if its watch has ended, or its process, or if it has not saved
        rows for long, by its own measure."""
        directory = RunDirectory(self.root / run_id)
        try:
            age = time.time() - (directory.path / "curve.parquet").stat().st_mtime
        except OSError:
            return False
        status = (directory.status() or {}) if age < LONGEST else {"ended": True}
        if status.get("ended") or is_gone(status.get("process")):
            return False
        interval = status.get("interval")
        return age < max(FRESH, LATE * interval if isinstance(interval, (int, float)) else 0.0)

    def _card(self, run_id: str, found: Forecast | None, step: int) -> dict[str, Any]:
        """A forecast as plain values; the time by the clock counts from the run's present step."""
        if found is None:
            return dict.fromkeys(("forecast", "outcome", "elapsed", "exit", "signal", "measure", "head", "measured"))
        rate = seconds_per_step(RunDirectory(self.root / run_id))
        zone = expected(found, rate)
        head = found.notes.head
        return {
            "forecast": sentence(found, rate),
            "outcome": found.outcome.value,
            "elapsed": _elapsed(found, step),
            "exit": None if zone is None else zone.to_dict() | {"seconds": _seconds(zone.low, zone.high, step, rate)},
            "signal": title(head[0]) if head is not None else title(found.signal),
            "measure": None if head is None else head[0],
            "head": None if head is None else head_name(*head[1:]),
            "measured": int(found.now),  # the last step that the curve has
        }

    def _forecast(self, run_id: str) -> tuple[Version, Forecast | None]:
        """The forecast of a run, and the state of its curve."""
        directory = RunDirectory(self.root / run_id)
        try:
            version = version_of(directory.path / "curve.parquet")
        except OSError:
            return (0, 0), None
        known = self._forecasts.get(run_id)
        if known is not None and known[0] == version:
            return known
        return version, forecast_run(directory)


def _elapsed(found: Forecast, step: int) -> float | None:
    """The part of the plateau that has passed; None where no end is known."""
    if found.outcome in (Outcome.EMERGED, Outcome.LEFT):
        return 1.0
    if found.outcome is not Outcome.EMERGES or not found.step:
        return None
    return plain(min(1.0, step / found.step))


def _seconds(low: float, high: float, step: int, rate: float | None) -> list[float] | None:
    """Seconds from now to both ends of a zone."""
    return None if not rate else [plain(max(0.0, (end - step) * rate)) for end in (low, high)]


def _naming(running: pd.DataFrame) -> list[str]:
    """The settings that name a card: the task, the sizes, and settings in which the runs differ."""
    differ = settings_of(telling_columns(running)) if len(running) > 1 else []
    return [c for c in dict.fromkeys(["task", *SIZES, *differ]) if c in running]
