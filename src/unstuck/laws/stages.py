"""Stages of a run on the ladder of paper 2: when each rung was reached and left, and when heads began to cooperate.

A rung is a truncated truth A*_{1:i}; `Curve.rungs` holds the distance of the model from each, KL( A*_{1:i} || model ).
A run climbs: it is nearest to rung 1 for a while, then to rung 2, and so on. The stages are the division of the whole
curve into consecutive parts with the smallest sum of log KL to the rung of the part, each row weighted by the steps
around it. This needs no threshold and no step number, and noise averages out.

Within its stage a rung is *reached* at the first step where log KL to it, as a median of three rows, has done four
fifths of its fall from the start of training to its lowest value in the whole run, and *left* where the stage ends. A
rung to which KL never fell by half was not approached, so not reached either. A rung without a stage of its own was not
reached but passed: another rung was nearer all the time.

*Cooperation* begins at the step after which the specialisation index stays above the middle between its lowest and its
last value.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.columns import RUNGS, SPECIALISATION, STEP, TEST_LOSS
from unstuck.curve import Curve
from unstuck.errors import BadInput

REACHED = 0.8  # of the fall of log KL
APPROACHED = math.log(2)  # the fall of log KL from which on a rung counts as approached


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


def find_stages(curve: Curve | pd.DataFrame, specialisation: NDArray[np.float64] | None = None) -> Stages:
    """The stages of a curve with the KL to each rung, and of its specialisation index: the one given, or its own."""
    curve = Curve.of(curve)
    to_rungs = _ladder(curve, STEP)
    steps = curve.steps
    if len(steps) < 2 or np.any(np.diff(steps) <= 0):
        raise BadInput("curve", f"{len(steps)} rows", "a curve of two rows or more, in the order of its steps")
    logs = np.log(np.maximum(to_rungs, 1e-12))  # (rows, rungs)
    stage = _climb(logs, np.gradient(steps))
    smooth = pd.DataFrame(logs).rolling(3, min_periods=1, center=True).median().to_numpy()
    rungs = []
    for i in range(logs.shape[1]):
        mine, lowest = np.flatnonzero(stage == i), int(smooth[:, i].argmin())
        fall = smooth[0, i] - smooth[lowest, i]
        reached = left = None
        there = mine[smooth[mine, i] <= smooth[0, i] - REACHED * fall]
        if len(there) and fall >= APPROACHED:
            end = mine[-1] + 1
            reached, left = float(steps[there[0]]), float(steps[end]) if end < len(steps) else None
        best = {"kl": float(np.exp(smooth[lowest, i])), "nearest": float(steps[lowest])}
        rungs.append(Rung(i + 1, reached, left, **best, approached=bool(fall >= APPROACHED)))
    if specialisation is None and curve.has(SPECIALISATION):
        specialisation = curve.values(SPECIALISATION)
    return Stages(rungs, None if specialisation is None else _cooperation(steps, specialisation))


def _ladder(curve: Curve, *needed: str) -> NDArray[np.float64]:
    """The KL to each rung, (rows, rungs), of a curve that also has what is `needed`, with a number in every row."""
    names = curve.rung_names
    if not names or not curve.has(*needed):
        raise BadInput("curve", curve.columns, f"a curve with columns {', '.join(needed)}, {RUNGS}")
    empty = [c for c in (*needed, *names) if not np.isfinite(curve.values(c)).all()]
    if empty:
        raise BadInput("curve", f"without a number in every row of {', '.join(empty)}", "complete in these columns")
    return curve.rungs


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


def _cooperation(steps: NDArray[np.float64], specialisation: NDArray[np.float64]) -> float | None:
    index = pd.Series(specialisation).rolling(3, min_periods=1, center=True).median().to_numpy()
    low, last = index.min(), index[-1]
    if last - low < 0.05:  # heads that never specialised
        return None
    below = np.flatnonzero(index < (low + last) / 2)
    return float(steps[below[-1] + 1]) if len(below) and below[-1] + 1 < len(steps) else None


@dataclass(frozen=True)
class EarlyStop:
    """Where the test loss was lowest, the nearest rung there, and the final loss. The rung is 0 if KL to the nearest
    one had not fallen by half since the start of the curve: an untrained model also has a nearest rung."""

    step: float
    loss: float
    rung: int
    kl: float  # to the nearest rung
    final_loss: float

    @property
    def gain(self) -> float:
        """How much lower the loss is there than at the end."""
        return self.final_loss - self.loss


def early_stop(curve: Curve | pd.DataFrame) -> EarlyStop:
    """Early stopping on a curve with the test loss and the KL to each rung: the truncated predictor it picks."""
    curve = Curve.of(curve)
    rungs, losses = _ladder(curve, STEP, TEST_LOSS), curve.values(TEST_LOSS)
    best = int(losses.argmin())
    nearest = int(np.argmin(rungs[best]))
    kl = float(rungs[best, nearest])
    rung = nearest + 1 if kl <= rungs[0, nearest] * math.exp(-APPROACHED) else 0
    return EarlyStop(float(curve.steps[best]), float(losses[best]), rung, kl, float(losses[-1]))
