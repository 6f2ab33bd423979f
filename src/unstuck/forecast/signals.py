"""What moves while the loss does not: one number a row of a curve, 0 at its start.

`gain` needs to know which tokens matter. On a sequence that repeats itself one does, and `induction` is the gain there.
`links` goes by any link that a task in two steps needs, as recall does: from the query to the value, from the value to
its key. The others need not know. They count from a fraction of the steps ago, not from the start: entropy drifts in
the first steps of every run, whether or not it will emerge.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
LINKS = ("attn", "copy")  # columns of what a task needs attention for: to find the answer, and to copy what tells it
FAINT = 0.1  # part of the mean over heads
LATELY = 1.6  # the steps now over those of the row that is compared with


def _names(curve: pd.DataFrame, prefix: str) -> list[str]:
    return [c for c in curve if c.startswith(f"{prefix}_") and c[len(prefix) + 1 :].replace("_", "").isdigit()]


def _columns(curve: pd.DataFrame, *prefixes: str) -> Array:
    return curve[[c for prefix in prefixes for c in _names(curve, prefix)]].to_numpy(dtype=float)


def gain(curve: pd.DataFrame) -> Array:
    """Logarithm of the best head's attention to the relevant tokens over that at the start: Δa of the theory."""
    return _gain(_columns(curve, "attn"))


def fall(curve: pd.DataFrame) -> float:
    """By how much the head has lost whose attention to the relevant tokens has fallen most, in the logarithm; a head
    that gives them next to nothing has nothing to lose."""
    attention = _columns(curve, "attn")
    then, now = np.maximum(attention[[0, -1]], _least(attention))
    return float(max(0.0, np.log(then / now).max()))


def links(curve: pd.DataFrame) -> Array:
    """The same along the link where it is largest: to the relevant tokens, or in copying."""
    return _gain(_columns(curve, *LINKS))


def induction(curve: pd.DataFrame) -> Array:
    """Logarithm of the best head's induction score over that at the start."""
    return _gain(_columns(curve, "induction"))


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


def chance(curve: pd.DataFrame, prefix: str = "attn") -> float:
    """Logarithm of the attention to the relevant tokens at the start, over all heads: -log(T/B) where uniform."""
    return float(np.log(np.maximum(_columns(curve, prefix)[0].mean(), 1e-12)))


def sharpening(curve: pd.DataFrame) -> Array:
    """How much the entropy of a head's attention has lately fallen, as part of that of uniform attention, for the
    head where most."""
    entropy = _columns(curve, "entropy")
    return np.maximum((entropy[_earlier(curve)] - entropy).max(1), 0.0)


def parting(curve: pd.DataFrame) -> Array:
    """How much the heads of a layer have lately parted in that entropy, for the layer where most."""
    names = [c for c in curve if c.startswith("entropy_")]
    layers = sorted({c.split("_")[1] for c in names})
    spreads = [curve[[c for c in names if c.split("_")[1] == layer]].std(axis=1, ddof=0) for layer in layers]
    spread = np.column_stack([s.to_numpy(dtype=float) for s in spreads])
    return np.maximum((spread - spread[_earlier(curve)]).max(1), 0.0)


def _earlier(curve: pd.DataFrame) -> NDArray[np.intp]:
    """For each row the last one at a LATELY-th of its step or before."""
    steps = curve["step"].to_numpy(dtype=float)
    return np.maximum(np.searchsorted(steps, steps / LATELY, side="right") - 1, 0)


#: Each with the columns it needs, by how they begin; in the order in which they are preferred.
SIGNALS: dict[str, tuple[tuple[str, ...], Callable[[pd.DataFrame], Array]]] = {
    "links": (LINKS, links),
    "gain": (("attn",), gain),
    "induction": (("induction",), induction),
    "sharpening": (("entropy",), sharpening),
    "parting": (("entropy",), parting),
}


def recorded(curve: pd.DataFrame, signal: str) -> pd.DataFrame:
    """The rows that have all a signal needs, and its columns: loggers write the loss more often than attention."""
    kinds = [
        [c for c in _names(curve, prefix) if np.isfinite(curve[c].to_numpy(dtype=float)).any()]
        for prefix in SIGNALS[signal][0]
    ]
    names = [c for kind in kinds for c in kind]
    rows = np.isfinite(curve[names].to_numpy(dtype=float)).all(1) & all(kinds)
    return curve.loc[rows, ["step", *names]]


def available(curve: pd.DataFrame) -> list[str]:
    """The signals that a curve has rows for, the best first."""
    return [name for name in SIGNALS if len(recorded(curve, name))]
