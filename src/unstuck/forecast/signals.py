"""What moves while the loss does not: one number a row of a curve, 0 at its start.

`gain` needs to know which tokens matter. On a sequence that repeats itself one does, and `induction` is the gain there.
`links` goes by any link that a task in two steps needs, as recall does: from the query to the value, from the value to
its key. `sharpening` and `parting` need not know: they go by the entropy at the read-out position, on which they were
calibrated, and not by that of all rows, which a `Watch` has. They count from a fraction of the steps ago, not from the
start: entropy drifts in the first steps of every run, whether or not it will emerge.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.curve import Curve

Array = NDArray[np.float64]
LINKS = ("attention", "copying")  # what a task needs attention for: to find the answer, and to copy what tells it
FAINT = 0.1  # part of the mean over heads
LATELY = 1.6  # the steps now over those of the row that is compared with


def gain(curve: Curve) -> Array:
    """Logarithm of the best head's attention to the relevant tokens over that at the start: Δa of the theory."""
    return _gain(curve.flat("attention"))


def fall(curve: Curve) -> float:
    """By how much the head has lost whose attention to the relevant tokens has fallen most, in the logarithm; a head
    that gives them next to nothing has nothing to lose."""
    attention = curve.flat("attention")
    then, now = np.maximum(attention[[0, -1]], _least(attention))
    return float(max(0.0, np.log(then / now).max()))


def links(curve: Curve) -> Array:
    """The same along the link where it is largest: to the relevant tokens, or in copying."""
    return _gain(curve.flat(*LINKS))


def induction(curve: Curve) -> Array:
    """Logarithm of the best head's induction score over that at the start."""
    return _gain(curve.flat("induction"))


def _gain(attention: Array) -> Array:
    """Over its start, or over FAINT of what heads give there, if that is more: from next to nothing to little is no
    gain."""
    start = np.maximum(attention[0], _least(attention))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.maximum(attention, 1e-12) / start)
    return np.maximum(logs.max(1), 0.0)


def _least(attention: Array) -> float:
    """What is told from nothing: FAINT of what heads give at the start."""
    return max(FAINT * float(attention[0].mean()), 1e-12)


def chance(curve: Curve, measure: str = "attention") -> float:
    """Logarithm of the attention to the relevant tokens at the start, over all heads: -log(T/B) where uniform."""
    return float(np.log(np.maximum(curve.flat(measure)[0].mean(), 1e-12)))


def sharpening(curve: Curve) -> Array:
    """How much the entropy of a head's attention from the read-out position has lately fallen, as part of that of
    uniform attention, for the head where most."""
    entropy = curve.flat("readout_entropy")
    return np.maximum((entropy[_earlier(curve)] - entropy).max(1), 0.0)


def parting(curve: Curve) -> Array:
    """How much the heads of a layer have lately parted in that entropy, for the layer where most."""
    layers = np.moveaxis(curve.heads("readout_entropy"), 1, 0)  # each (rows, heads), NaN where there is no such head
    spread = np.column_stack([pd.DataFrame(layer).std(axis=1, ddof=0) for layer in layers if np.isfinite(layer).any()])
    return np.maximum((spread - spread[_earlier(curve)]).max(1), 0.0)


def _earlier(curve: Curve) -> NDArray[np.intp]:
    """For each row the last one at a LATELY-th of its step or before."""
    steps = curve.steps
    return np.maximum(np.searchsorted(steps, steps / LATELY, side="right") - 1, 0)


#: Each with the measures of heads it needs, in the order in which they are preferred.
SIGNALS: dict[str, tuple[tuple[str, ...], Callable[[Curve], Array]]] = {
    "links": (LINKS, links),
    "gain": (("attention",), gain),
    "induction": (("induction",), induction),
    "sharpening": (("readout_entropy",), sharpening),
    "parting": (("readout_entropy",), parting),
}
#: What may be all that a `Watch` has. No runs were fitted on it, so no signal is read from it.
UNCALIBRATED = "row_entropy"


def recorded(curve: Curve, signal: str) -> Curve:
    """The rows that have all a signal needs, with nothing else."""
    return curve.complete(*SIGNALS[signal][0])


def available(curve: Curve | pd.DataFrame) -> list[str]:
    """The signals that a curve has rows for, the best first."""
    curve = Curve.of(curve)
    return [name for name in SIGNALS if len(recorded(curve, name))]
