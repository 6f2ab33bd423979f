"""A measure of every attention head over training, as plain values for a page."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from unstuck.curve import Curve
from unstuck.view.marks import uniform_attention
from unstuck.view.plain import plain, thinned

NUMBERS = 60_000  # of an answer, whatever the number of heads
TITLES = {
    "attention": "attention to the relevant tokens",
    "induction": "induction score",
    "copying": "attention from a value to its key",
    "previous_token": "attention to the previous token",
    "duplicate_token": "attention to the same token, the last time",
    "readout_entropy": "entropy of attention at the read-out position",
    "row_entropy": "entropy of attention, mean over rows",
    "distance": "distance of attention (tokens), mean over rows",
}


def heads_of(curve: Curve | None, row: Mapping[str, Any], measure: str, points: int) -> dict[str, Any]:
    """A measure of all heads in so many rows at most, and the measures that there are, the most telling first. Where
    the curve does not have the measure, the first of these."""
    known = [] if curve is None else sorted(curve.measures, key=_order)
    titles = {name: title(name) for name in known}
    if curve is None or not known or not len(curve):
        return {"measures": {}, "measure": "", "step": [], "heads": [], "values": [], "chance": None}
    measure = measure if measure in titles else known[0]
    values = curve.flat(measure)
    heads = curve.head_places(measure)
    rows = thinned(len(curve), max(2, min(points, NUMBERS // len(heads))))
    return {
        "measures": titles,
        "measure": measure,
        "step": [plain(float(x)) for x in curve.steps[rows]],
        "heads": [list(at) for at in heads],
        "values": [[plain(x) for x in one] for one in np.asarray(values[rows].T, dtype=float).tolist()],
        "chance": uniform_attention(row, measure),
    }


def title(measure: str) -> str:
    """What a measure is, in words."""
    group = re.fullmatch("(readout_)?group([0-9]+)", measure)
    if group is not None:
        return f"attention to group {group[2]}" + (" from the read-out position" if group[1] else "")
    return TITLES.get(measure, measure.replace("_", " "))


def head_name(layer: int, head: int) -> str:
    """Counted from 1, as papers do."""
    return f"layer {layer + 1}, head {head + 1}"


def _order(measure: str) -> tuple[int, str]:
    known = list(TITLES)
    groups = known.index("previous_token")  # attention to groups tells more than what follows
    return (known.index(measure) if measure in TITLES else groups, measure)
