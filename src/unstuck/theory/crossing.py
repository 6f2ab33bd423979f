"""The step at which a sampled curve first falls to a threshold."""

from typing import Any

import numpy as np


def log_crossing(steps: Any, losses: Any, threshold: float) -> float | None:
    """The step at which the loss first is at most `threshold`, interpolating its logarithm; None if it never is."""
    logs, at = np.log(np.asarray(losses, dtype=float)), np.asarray(steps, dtype=float)
    below = np.flatnonzero(logs <= np.log(threshold))
    if not below.size:
        return None
    i = int(below[0])
    if i == 0:
        return float(at[0])
    share = (logs[i - 1] - np.log(threshold)) / (logs[i - 1] - logs[i])
    return float(at[i - 1] + share * (at[i] - at[i - 1]))
