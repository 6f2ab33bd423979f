"""When will a run leave its plateau? Forecasts while the loss is flat, how they are fitted and how good they are."""

from .forecaster import Forecaster
from .outcome import Event, Forecast, Outcome
from .signals import SIGNALS

__all__ = ["SIGNALS", "Event", "Forecast", "Forecaster", "Outcome"]
