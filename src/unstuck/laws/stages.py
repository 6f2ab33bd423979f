"""Stages of a run on the ladder of paper 2: when each rung was reached and left, and when heads began to cooperate.

A rung is a truncated truth A*_{1:i}; the curve says how far the model is from each, KL( A*_{1:i} || model ) in `kl_1`,
`kl_2`, .... A run climbs: it is nearest to rung 1 for a while, then to rung 2, and so on. Where the rungs change is
found for the whole curve at once, as the division into consecutive stages with the smallest sum of log KL to the rung
of the stage, each row counting with the steps it stands for: no threshold, no step number, and noise averages out.

Within its stage a rung is *reached* at the first step where log KL to it, as a median of three rows, has done four
fifths of its fall from the start of training to its lowest value in the whole run, and *left* where the stage ends. A
rung to which KL never fell by half was not approached, so not reached either; nor was one that has no stage of its own,
because the run came near it while another was nearer: it was only passed.

*Cooperation* begins at the step from which on the specialisation index is above half of the way from its lowest to its
last value.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.errors import BadInput

REACHED = 0.8  # of the fall of log KL
APPROACHED = math.log(2)  # by so much it must have fallen for the rung to have been approached at all


@dataclass(frozen=True)
class Rung:
    """A truncated truth A*_{1:number}: the steps at which it was reached and left, and the KL to it at its best."""

    number: int
    reached: float | None  # None where the run never was on it
    left: float | None  # None while the run is on it, or never was
    kl: float  # the lowest of the run
    nearest: float  # the step at which that is
    approached: bool  # whether KL fell by half or more on the way there


@dataclass(frozen=True)
class Stages:
    rungs: list[Rung]
    cooperation: float | None  # the step at which competition turns into cooperation; None without that column

    @property
    def highest(self) -> int:
        """The last rung that was reached; 0 if none."""
        return max((rung.number for rung in self.rungs if rung.reached is not None), default=0)


def find_stages(curve: pd.DataFrame) -> Stages:
    """The stages of a curve with columns `step`, `kl_1`, `kl_2`, ... and, if it has one, `specialisation`."""
    columns = _ladder(curve, "step")
    steps = curve["step"].to_numpy(dtype=float)
    if len(steps) < 2 or np.any(np.diff(steps) <= 0):
        raise BadInput("curve", f"{len(steps)} rows", "a curve of two rows or more, in the order of its steps")
    logs = np.log(np.maximum(curve[columns].to_numpy(dtype=float), 1e-12))  # (rows, rungs)
    stage = _climb(logs, np.gradient(steps))
    smooth = pd.DataFrame(logs).rolling(3, min_periods=1, center=True).median().to_numpy()
    rungs = []
    for i in range(len(columns)):
        mine, lowest = np.flatnonzero(stage == i), int(smooth[:, i].argmin())
        fall = smooth[0, i] - smooth[lowest, i]
        reached = left = None
        there = mine[smooth[mine, i] <= smooth[0, i] - REACHED * fall]
        if len(there) and fall >= APPROACHED:
            end = mine[-1] + 1
            reached, left = float(steps[there[0]]), float(steps[end]) if end < len(steps) else None
        best = {"kl": float(np.exp(smooth[lowest, i])), "nearest": float(steps[lowest])}
        rungs.append(Rung(i + 1, reached, left, **best, approached=bool(fall >= APPROACHED)))
    return Stages(rungs, _cooperation(curve) if "specialisation" in curve else None)


def _ladder(curve: pd.DataFrame, *needed: str) -> list[str]:
    """The columns kl_1, kl_2, ... of a curve that has them and those `needed`, with a number in every row."""
    columns = sorted((c for c in map(str, curve) if re.fullmatch(r"kl_\d+", c)), key=lambda c: int(c[3:]))
    missing = [c for c in needed if c not in curve]
    if not columns or missing:
        wanted = ", ".join([*needed, "kl_1", "kl_2"])
        raise BadInput("curve", list(curve.columns), f"a curve with columns {wanted}, ...")
    empty = [c for c in (*needed, *columns) if not np.isfinite(curve[c].to_numpy(dtype=float)).all()]
    if empty:
        raise BadInput("curve", f"without a number in every row of {', '.join(empty)}", "complete in these columns")
    return columns


def _climb(logs: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """The rung of each row, never going down, with the smallest weighted sum of logs; by dynamic programming."""
    rows, rungs = logs.shape
    cost = logs * weight[:, None]
    best = np.full((rows, rungs), np.inf)
    came = np.zeros((rows, rungs), dtype=np.int64)
    best[0] = cost[0]
    for r in range(1, rows):
        low = 0
        for i in range(rungs):
            low = i if best[r - 1, i] < best[r - 1, low] else low
            came[r, i] = low
            best[r, i] = best[r - 1, low] + cost[r, i]
    path = np.empty(rows, dtype=np.int64)
    path[-1] = best[-1].argmin()
    for r in range(rows - 1, 0, -1):
        path[r - 1] = came[r, path[r]]
    return path


def _cooperation(curve: pd.DataFrame) -> float | None:
    index = curve["specialisation"].rolling(3, min_periods=1, center=True).median().to_numpy()
    low, last = index.min(), index[-1]
    if last - low < 0.05:  # heads that never parted
        return None
    below = np.flatnonzero(index < (low + last) / 2)
    return float(curve["step"].iloc[below[-1] + 1]) if len(below) and below[-1] + 1 < len(curve) else None


@dataclass(frozen=True)
class EarlyStop:
    """Where the validation loss was best, which rung the model was nearest to there, and what the end would have
    cost. The rung is 0 where KL to the nearest one had not fallen by half since the start of the curve: an untrained
    model is nearest to some rung, too."""

    step: float
    loss: float
    rung: int
    kl: float  # to the nearest rung
    final_loss: float

    @property
    def gain(self) -> float:
        """By how much stopping there beats the final model."""
        return self.final_loss - self.loss


def early_stop(curve: pd.DataFrame) -> EarlyStop:
    """Early stopping on a curve with `test_loss` and `kl_1`, `kl_2`, ...: the truncated predictor it picks."""
    columns = _ladder(curve, "step", "test_loss")
    best = curve.iloc[int(curve["test_loss"].to_numpy(dtype=float).argmin())]
    nearest = columns[int(np.argmin(best[columns].to_numpy(dtype=float)))]
    near = best[nearest] <= curve[nearest].iloc[0] * math.exp(-APPROACHED)
    rung, last = (int(nearest[3:]) if near else 0), float(curve["test_loss"].iloc[-1])
    return EarlyStop(float(best["step"]), float(best["test_loss"]), rung, float(best[nearest]), last)
