"""When will a run leave its plateau? Events, forecasts while they lie ahead, how these are fitted and judged."""

from .events import CircuitRule, Event, ExitRule
from .features import KINDS
from .forecaster import Forecaster
from .notes import Outcome
from .outcome import Forecast

__all__ = ["KINDS", "CircuitRule", "Event", "ExitRule", "Forecast", "Forecaster", "Outcome"]
