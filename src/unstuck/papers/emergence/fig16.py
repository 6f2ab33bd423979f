"""Figure 16: on data like the training data, repetition only speeds recall up.

C.2. The runs of Figure 5, tested on data with the repetition they are trained with. With B copies of the query, its
value is often the most frequent one of the context: dotted, what counting alone would score.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._recall import first_step, plot_accuracy, repetition_data, repetition_runs, step_list
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import panels, shades
from unstuck.tasks.recall import Recall
from unstuck.training.seeds import stream


def runs(profile: Profile) -> list[TieredRun]:
    both = {run.spec.run_id: run for key in ("B", "p") for run in repetition_runs(profile, key)}
    return list(both.values())


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return repetition_data(runs(profile), store)


def _part(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """The runs in which only `key` is varied."""
    return table[table["p"] == 0] if key == "B" else table[table["B"] == 1]


def counting(pairs: int, tokens: int, B: float) -> float:
    """Accuracy on training-like data of a learner that cannot recall, but says the most frequent value of the context.

    Examples:
        >>> round(counting(8, 64, 1.0), 2)
        0.12
    """
    task = Recall(tokens=tokens, pairs=pairs, B=B)
    batch = task.sample(4096, stream(0, "counting"), {})
    values = batch.inputs[:, 1:-1:2]
    times = (values[:, :, None] == values[:, None]).sum(2)  # (n, pairs)
    most = times == times.amax(1, keepdim=True)
    right = values == batch.targets[:, None]
    return float(((most & right).sum(1) / most.sum(1)).mean())


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.6)
    for ax, key, title in ((axes[0], "B", "in-context repetition"), (axes[1], "p", "cross-sample repetition")):
        part = _part(table, key)
        plot_accuracy(ax, part, key, "like_accuracy")
        if key == "B":
            for value, colour in shades(sorted(part["B"].unique())).items():
                ax.axhline(_counting(part, value), color=colour, lw=0.9, ls=":")
        ax.set_title(title)
        ax.set_ylabel("accuracy on training-like data")
        ax.legend(loc="lower right")
    return picture


def _counting(table: pd.DataFrame, B: float) -> float:
    return counting(int(table["pairs"].iloc[0]), int(table["tokens"].iloc[0]), float(B))


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    last = float(table["step"].max())
    for key, none, what in (("B", 1.0, "in-context"), ("p", 0.0, "cross-sample")):
        part = _part(table, key)
        steps = {
            float(value): [first_step(run, "like_accuracy", 0.5) for _, run in rows.groupby("run_id")]
            for value, rows in part.groupby(key)
        }
        text = "; ".join(f"{key} = {value:g}: {step_list(found, last)}" for value, found in steps.items())
        # Without repetition at best at its last step, if it never got there.
        base = min(min(steps[none]), last) if none in steps else np.inf
        slowest = [max(found) for value, found in steps.items() if value != none]
        faster = bool(max(slowest) <= base) if slowest and none in steps else None
        claims.append(Claim(f"steps to 50%, {what} repetition, each seed", text, "repetition always speeds up", faster))
    for value in sorted(set(_part(table, "B")["B"]) - {1.0}):
        share = f"{_counting(table, value):.2f}"
        claims.append(Claim(f"accuracy of the most frequent value, without recall, B = {value:g}", share, None, None))
    return claims
