"""The steps between which a run is expected to leave its plateau, and when these come by the clock.

The progress line of `train`, `unstuck forecast`, the report and the dashboard all show what `expected` computes.
"""

import math
from dataclasses import dataclass
from typing import Any

from unstuck.errors import BadInput
from unstuck.forecast import Event, Forecast, Forecaster
from unstuck.store.store import RunDirectory
from unstuck.view.console import duration

OVER = ("emerged", "diverged", "finished")  # status of runs of which nothing is expected any more
_NAMES = {Event.EXIT: "expected exit", Event.CIRCUIT: "induction heads expected", Event.TASK: "threshold expected"}


@dataclass(frozen=True)
class Expected:
    """Where a zone is drawn on a loss curve: the ends of the interval and its median, in steps."""

    low: float
    step: float
    high: float
    clock: str  # "in 5 min to 8 min"; empty where the time of a step is not known
    event: Event

    @property
    def label(self) -> str:
        steps = f"{_NAMES[self.event]}: step {self.low:,.0f} to {self.high:,.0f}"
        return f"{steps}, {self.clock}" if self.clock else steps

    def to_dict(self) -> dict[str, Any]:
        return {"low": self.low, "step": self.step, "high": self.high, "label": self.label}


def expected(forecast: Forecast, seconds_per_step: float | None = None) -> Expected | None:
    """The zone of a forecast; None where no end is predicted."""
    interval = forecast.interval()
    if interval is None or forecast.step is None or not all(map(math.isfinite, (*interval, forecast.step))):
        return None
    clock = ""
    if seconds_per_step:
        first, last = (duration((end - forecast.now) * seconds_per_step / 3600) for end in interval)
        clock = f"in {last}" if first == last else f"in {first} to {last}"
    return Expected(interval[0], forecast.step, interval[1], clock, forecast.event)


def sentence(forecast: Forecast, seconds_per_step: float | None = None) -> str:
    """A forecast in a sentence, with the time by the clock of what it expects."""
    zone = expected(forecast, seconds_per_step)
    return f"{forecast}; {zone.clock}" if zone is not None and zone.clock else str(forecast)


def forecast_run(directory: RunDirectory) -> Forecast | None:
    """The forecast of a run in a directory; None where there is too little to forecast from."""
    curve, spec = directory.curve(), directory.spec() or {}
    if curve is None or len(curve) < 2:
        return None
    try:
        return Forecaster(task=spec.get("task", {}).get("name")).predict(curve)
    except BadInput:
        return None


def zone_of(directory: RunDirectory) -> dict[str, Any] | None:
    """The zone of a run in a directory as plain values; None where the run is over, or no end is predicted."""
    if (directory.row() or {}).get("status") in OVER or (found := forecast_run(directory)) is None:
        return None
    zone = expected(found, seconds_per_step(directory))
    return None if zone is None else zone.to_dict()


def seconds_per_step(directory: RunDirectory) -> float | None:
    """From the status of a run; None where it does not have the time."""
    status = directory.status() or {}
    known = {**status, **(status.get("result") or {})}
    seconds, steps = known.get("seconds"), known.get("steps", known.get("step"))
    return float(seconds) / float(steps) if seconds and steps else None
