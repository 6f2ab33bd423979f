"""Checks of numbers that users give."""

import math
from numbers import Integral, Real
from typing import Any

from unstuck.errors import BadInput


def number(value: Any) -> float:
    """A number, also from a tensor with one element, without its graph."""
    return float(value.detach() if hasattr(value, "detach") else value)


def measure(name: str, value: Any) -> float:
    """The same, with one sentence for anything else."""
    try:
        return number(value)
    except (TypeError, ValueError, RuntimeError) as e:
        raise BadInput(name, value, "a number, or a tensor with one element") from e


def is_whole(value: Any) -> bool:
    """A whole number of Python or NumPy; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(field: str, value: object, low: int, high: int, allowed: str) -> int:
    """`value` as an int within [low, high]; True, 3.0 and "3" are not whole numbers here."""
    if not is_whole(value) or not low <= int(value) <= high:  # type: ignore[call-overload]
        raise BadInput(field, value, allowed)
    return int(value)  # type: ignore[call-overload]


def real(field: str, value: object, low: float, high: float, allowed: str) -> float:
    """`value` as a float within [low, high]; NaN is refused."""
    ok = isinstance(value, Real) and not isinstance(value, bool)
    x = float(value) if ok else math.nan  # type: ignore[arg-type]
    if not low <= x <= high:
        raise BadInput(field, value, allowed)
    return x
