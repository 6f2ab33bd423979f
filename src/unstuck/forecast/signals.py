"""What moves while the loss does not: one number for each row of a curve, 0 at its start.

`gain` needs to know which tokens are relevant. On a repeated sequence one token is, and `induction` is the gain there.
`two_step_gain` is for tasks that need two links, such as recall: from the query to the value, and from the value to its
key; it is the gain along the link where that is largest. `entropy_drop` and `head_divergence` need no knowledge of the
task. They use the entropy at the read-out position, on which they were calibrated, and not the mean entropy over all
rows that a `Watch` records. They compare with an earlier row and not with the start, because entropy drifts in the
first steps of every run, whether or not it will emerge.
"""

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.curve import Curve

from ._old import old_names

Array = NDArray[np.float64]
TWO_STEPS = ("attention", "copying")  # the links of a task in two steps: find the answer, copy what identifies it
FAINT = 0.1  # fraction of the heads' mean attention at the start below which attention counts as none
EARLIER = 1.6  # steps now over steps of the row that entropy is compared with
LOOK_BACK = 2.2  # steps now over steps of the row that a forecast is compared with


def gain(curve: Curve) -> Array:
    """Logarithm of the best head's attention to the relevant tokens over that at the start: Δa of the theory."""
    return _gain(curve.flat("attention"))


def largest_loss(curve: Curve) -> float:
    """The largest fall of any head's attention to the relevant tokens since the start, in the logarithm; heads with
    faint attention are left out."""
    attention = curve.flat("attention")
    then, now = np.maximum(attention[[0, -1]], _faint(attention))
    return float(max(0.0, np.log(then / now).max()))


def two_step_gain(curve: Curve) -> Array:
    """The gain along the link where it is largest: to the relevant tokens, or in copying."""
    return _gain(curve.flat(*TWO_STEPS))


def induction(curve: Curve) -> Array:
    """Logarithm of the best head's induction score over that at the start."""
    return _gain(curve.flat("induction"))


def _gain(attention: Array) -> Array:
    """Over the start, or over faint attention if that is more: a rise from almost nothing to little is no gain."""
    start = np.maximum(attention[0], _faint(attention))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.maximum(attention, 1e-12) / start)
    return np.maximum(logs.max(1), 0.0)


def _faint(attention: Array) -> float:
    return max(FAINT * float(attention[0].mean()), 1e-12)


def chance(curve: Curve, measure: str = "attention") -> float:
    """Logarithm of the mean attention to the relevant tokens at the start, over all heads: -log(T/B) where uniform."""
    return float(np.log(np.maximum(curve.flat(measure)[0].mean(), 1e-12)))


def entropy_drop(curve: Curve) -> Array:
    """Recent fall of the entropy of a head's attention from the read-out position, as a fraction of the entropy of
    uniform attention; of the head that fell most."""
    entropy = curve.flat("readout_entropy")
    return np.maximum((entropy[_earlier(curve)] - entropy).max(1), 0.0)


def head_divergence(curve: Curve) -> Array:
    """Recent growth of the standard deviation of that entropy over the heads of a layer; of the layer where it grew
    most."""
    layers = np.moveaxis(curve.heads("readout_entropy"), 1, 0)  # each (rows, heads), NaN where there is no such head
    spread = np.column_stack([pd.DataFrame(layer).std(axis=1, ddof=0) for layer in layers if np.isfinite(layer).any()])
    return np.maximum((spread - spread[_earlier(curve)]).max(1), 0.0)


def _earlier(curve: Curve) -> NDArray[np.intp]:
    """For each row the last row with at most 1 / EARLIER of its steps."""
    steps = curve.steps
    return np.maximum(np.searchsorted(steps, steps / EARLIER, side="right") - 1, 0)


#: Each with the measures of heads it needs, the preferred ones first.
SIGNALS: dict[str, tuple[tuple[str, ...], Callable[[Curve], Array]]] = {
    "two_step_gain": (TWO_STEPS, two_step_gain),
    "gain": (("attention",), gain),
    "induction": (("induction",), induction),
    "entropy_drop": (("readout_entropy",), entropy_drop),
    "head_divergence": (("readout_entropy",), head_divergence),
}
BLIND = ("entropy_drop", "head_divergence")  # signals that need no knowledge of the task
UNCALIBRATED = "row_entropy"  # a measure that a `Watch` always has; no runs were fitted on it, so it is no signal
_OLD = {"links": "two_step_gain", "parting": "head_divergence", "sharpening": "entropy_drop"}


def current_name(signal: str) -> str:
    """The name of a signal today, with a warning if an old one is given."""
    if signal not in _OLD:
        return signal
    new = _OLD[signal]
    warnings.warn(f"signal {signal} is now {new}; the old name goes with the next release", FutureWarning, stacklevel=3)
    return new


def recorded(curve: Curve, signal: str) -> Curve:
    """The rows that have all a signal needs, with nothing else."""
    return curve.complete(*SIGNALS[signal][0])


def available(curve: Curve | pd.DataFrame) -> list[str]:
    """The signals that a curve has rows for, the best first."""
    curve = Curve.of(curve)
    return [name for name in SIGNALS if len(recorded(curve, name))]


__getattr__ = old_names(__name__, {old: SIGNALS[new][1] for old, new in _OLD.items()})
