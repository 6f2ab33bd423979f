"""How long a Transformer sits on a plateau, why, and how to get it off sooner.

The data flow: spec -> task -> model -> training -> curve -> plateau -> law -> prediction, figure, report.
Importing `unstuck` imports none of the parts: `unstuck.train`, `unstuck.Watch` and the others are loaded when used.
"""

from importlib import import_module
from typing import Any

from ._moved import install as _keep_old_names

__version__ = "0.2.0"
__all__ = [
    "Curve",
    "DiversitySchedule",
    "Forecaster",
    "LightningCallback",
    "TrainerCallback",
    "Watch",
    "__version__",
    "train",
    "watch",
]

_keep_old_names()

_PLACES = {
    "Curve": "unstuck.curve",
    "train": "unstuck.runner.api",
    "Forecaster": "unstuck.forecast",
    "Watch": "unstuck.attach",
    "watch": "unstuck.attach",
    "TrainerCallback": "unstuck.attach.hugging_face",
    "LightningCallback": "unstuck.attach.lightning_callback",
    "DiversitySchedule": "unstuck.schedule",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'unstuck' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
