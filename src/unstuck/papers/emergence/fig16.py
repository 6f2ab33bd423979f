"""Figure 16: on data like the training data, repetition only speeds recall up.

C.2. The runs of Figure 5, tested on data with the repetition they are trained with.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._recall import plot_accuracy, repetition_data, repetition_runs
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import panels


def runs(profile: Profile) -> list[TieredRun]:
    both = {run.spec.run_id: run for key in ("B", "p") for run in repetition_runs(profile, key)}
    return list(both.values())


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return repetition_data(runs(profile), store)


def _part(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """The runs in which only `key` is varied."""
    return table[table["p"] == 0] if key == "B" else table[table["B"] == 1]


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.6)
    for ax, key, title in ((axes[0], "B", "in-context repetition"), (axes[1], "p", "cross-sample repetition")):
        plot_accuracy(ax, _part(table, key), key, "like_accuracy")
        ax.set_title(title)
        ax.set_ylabel("accuracy on training-like data")
        ax.legend(loc="lower right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for key, none, what in (("B", 1.0, "in-context"), ("p", 0.0, "cross-sample")):
        steps: dict[float, float] = {}
        for value, rows in _part(table, key).groupby(key):
            reached = [_half(run) for _, run in rows.groupby("run_id")]
            if all(r is not None for r in reached):
                steps[float(value)] = float(np.mean(reached))  # type: ignore[arg-type]
        text = ", ".join(f"{key} = {value:g}: {step:.0f}" for value, step in steps.items()) or "none yet"
        others = [step for value, step in steps.items() if value != none]
        faster = bool(max(others) <= steps[none]) if others and none in steps else None
        claims.append(
            Claim(f"steps to 50%, {what} repetition", text, "repetition always speeds up", faster, "mean over seeds")
        )
    return claims


def _half(run: pd.DataFrame) -> float | None:
    """The first step at which the accuracy, smoothed over three rows, is 50%."""
    above = np.flatnonzero(run["like_accuracy"].rolling(3, min_periods=1, center=True).mean() >= 0.5)
    return float(run["step"].iloc[above[0]]) if len(above) else None
