"""Levels that a curve is read against: the threshold of a run, the accuracy of a guess, uniform attention."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from unstuck.columns import COPY_ADVANTAGE, TEST_ACCURACY, TEST_LOSS
from unstuck.curve import Curve

Mark = dict[str, Any]  # measure, y, label
Settings = Mapping[str, Any]  # a run as a row of a store's table

#: By the name of a task, as its class has them: building one would import torch to draw a line.
GUESSING: dict[str, Callable[[Settings], float]] = {
    "recall": lambda row: 1 / row["pairs"],
    "mqar": lambda row: 1 / row["pairs"],
    "induction_heads": lambda row: 1 / row["tokens"],
}
#: Attention of a head that attends to all positions alike, to the relevant ones.
UNIFORM: dict[str, Callable[[Settings], float]] = {
    "regression": lambda row: row["B"] / row["T"],
    "recall": lambda row: row["B"] / ((1 if row.get("joined") is True else 2) * row["pairs"] + 1),
}


def marks_of(row: Settings, curve: Curve) -> list[Mark]:
    """The threshold, on the measure that decides: the copying advantage or the accuracy where it is measured, else the
    loss; while a run is in training, the last that it is asked for. And the accuracy of a guess."""
    decides = next((c for c in (COPY_ADVANTAGE, TEST_ACCURACY) if curve.has(c)), TEST_LOSS)
    found: list[Mark] = []
    threshold = _threshold(row)
    if threshold is not None and curve.has(decides):
        found.append({"measure": decides, "y": threshold, "label": f"threshold {threshold:g}"})
    level = _level(GUESSING, row)
    if level is not None and curve.has(TEST_ACCURACY):
        found.append({"measure": TEST_ACCURACY, "y": level, "label": f"guessing {level:.3g}"})
    return found


def uniform_attention(row: Settings, measure: str) -> Mark | None:
    """What a measure of a head is where it attends to all positions alike; None where that is not known. An entropy is
    then 1."""
    level = _level(UNIFORM, row) if measure == "attention" else None
    if measure in ("readout_entropy", "row_entropy"):
        level = 1.0
    return None if level is None else {"measure": measure, "y": level, "label": f"uniform attention {level:.3g}"}


def _threshold(row: Settings) -> float | None:
    asked = row.get("thresholds")
    known = [row.get("threshold"), asked[-1] if isinstance(asked, list) and asked else None]
    return next((float(x) for x in known if isinstance(x, (int, float)) and math.isfinite(x)), None)


def _level(known: Mapping[str, Callable[[Settings], float]], row: Settings) -> float | None:
    """A level by the settings of a task; None where these are damaged or of another task."""
    try:
        level = float(known[str(row.get("task"))](row))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return level if math.isfinite(level) else None
