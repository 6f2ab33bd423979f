"""Numbers as users hand them over."""

from numbers import Integral
from typing import Any


def number(value: Any) -> float:
    """A number, or what a tensor of one holds, without its graph."""
    return float(value.detach() if hasattr(value, "detach") else value)


def is_whole(value: Any) -> bool:
    """A whole number, of Python or of NumPy; true and false are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)
