"""How long is this run still on its plateau? Answers while the loss is flat."""

from .forecaster import Forecast, Forecaster
from .signals import SIGNALS

__all__ = ["SIGNALS", "Forecast", "Forecaster"]
