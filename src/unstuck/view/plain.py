"""Plain values for JSON: numbers of five digits without infinities, and which rows of a long table are shown."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def thinned(rows: int, points: int) -> NDArray[np.int64]:
    """The places of at most so many rows at even distances, including the first and the last."""
    if rows <= points:
        return np.arange(rows)
    return np.unique(np.linspace(0, rows - 1, points).round().astype(np.int64))
