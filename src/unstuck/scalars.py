"""Numbers as users hand them over."""

from typing import Any


def number(value: Any) -> float:
    """A number, or what a tensor of one holds, without its graph."""
    return float(value.detach() if hasattr(value, "detach") else value)
