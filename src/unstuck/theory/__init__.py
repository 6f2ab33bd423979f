"""The mathematics of paper 1: reduced losses, their flows, closed forms. NumPy and SciPy only.

>>> from unstuck.theory import Flow, blow_up_time
>>> flow = Flow(T=512, d=64)
>>> round(flow.plateau().time), round(blow_up_time(flow))
(5314, 5134)
"""

from .closed_form import (
    Linearised,
    blow_up_time,
    catch_up_time,
    escape_time,
    escape_time_eq6,
    finish_time,
    linearised,
    plateau_estimate,
    progress,
    rate,
)
from .descent import Descent, gradient_descent
from .flow import Flow, Plateau, Trajectory, plateau_lengths
from .losses import ThreeVariableLoss, TwoVariableLoss
from .setting import Setting

__all__ = [
    "Descent",
    "Flow",
    "Linearised",
    "Plateau",
    "Setting",
    "ThreeVariableLoss",
    "Trajectory",
    "TwoVariableLoss",
    "blow_up_time",
    "catch_up_time",
    "escape_time",
    "escape_time_eq6",
    "finish_time",
    "gradient_descent",
    "linearised",
    "plateau_estimate",
    "plateau_lengths",
    "progress",
    "rate",
]
