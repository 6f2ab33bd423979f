"""What moves while the loss does not: one number a row of a curve, 0 at its start.

`gain` needs to know which tokens matter; the others do not. Those count from a fraction of the steps ago, not from the
start: entropy drifts in the first steps of every run, whether or not it will emerge.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
LATELY = 1.6  # the steps now over those of the row that is compared with


def _columns(curve: pd.DataFrame, prefix: str) -> Array:
    names = [c for c in curve if c.startswith(f"{prefix}_") and c[len(prefix) + 1 :].replace("_", "").isdigit()]
    return curve[names].to_numpy(dtype=float)


def gain(curve: pd.DataFrame) -> Array:
    """Logarithm of the best head's attention to the relevant tokens over that at the start: Δa of the theory."""
    attention = _columns(curve, "attn")
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.maximum(attention, 1e-12) / np.maximum(attention[0], 1e-12))
    return np.maximum(logs.max(1), 0.0)


def chance(curve: pd.DataFrame) -> float:
    """Logarithm of the attention to the relevant tokens at the start, over all heads: -log(T/B) where uniform."""
    return float(np.log(np.maximum(_columns(curve, "attn")[0].mean(), 1e-12)))


def sharpening(curve: pd.DataFrame) -> Array:
    """How much the entropy of a head's attention has lately fallen, in nats, for the head where most."""
    entropy = _columns(curve, "entropy")
    return np.maximum((entropy[_earlier(curve)] - entropy).max(1), 0.0)


def parting(curve: pd.DataFrame) -> Array:
    """How much the heads of a layer have lately parted in entropy, in nats, for the layer where most."""
    names = [c for c in curve if c.startswith("entropy_")]
    layers = sorted({c.split("_")[1] for c in names})
    spreads = [curve[[c for c in names if c.split("_")[1] == layer]].std(axis=1, ddof=0) for layer in layers]
    spread = np.column_stack([s.to_numpy(dtype=float) for s in spreads])
    return np.maximum((spread - spread[_earlier(curve)]).max(1), 0.0)


def _earlier(curve: pd.DataFrame) -> NDArray[np.intp]:
    """For each row the last one at a LATELY-th of its step or before."""
    steps = curve["step"].to_numpy(dtype=float)
    return np.maximum(np.searchsorted(steps, steps / LATELY, side="right") - 1, 0)


#: Each with the columns it needs; in the order in which they are preferred.
SIGNALS: dict[str, tuple[str, Callable[[pd.DataFrame], Array]]] = {
    "gain": ("attn", gain),
    "sharpening": ("entropy", sharpening),
    "parting": ("entropy", parting),
}


def available(curve: pd.DataFrame) -> list[str]:
    """The signals that a curve has the columns for, the best first."""
    return [name for name, (needs, _) in SIGNALS.items() if _columns(curve, needs).shape[1]]
