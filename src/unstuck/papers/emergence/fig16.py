"""Figure 16: on data like the training data, repetition speeds recall up.

C.2. The runs of Figure 5, tested on data with the repetition they are trained with. With B copies of the query, its
value is often the most frequent one of the context: dotted, what counting alone would score.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.columns import LIKE_ACCURACY
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import panels, shades
from unstuck.tasks.recall import Recall
from unstuck.training.seeds import stream

from ._recall import first_step, step_list
from ._regression import each_once
from ._repetition import plot_accuracy, repetition_data, repetition_runs


def runs(profile: Profile) -> list[TieredRun]:
    return each_once(run for key in ("B", "p") for run in repetition_runs(profile, key))


def data(done: Finished) -> pd.DataFrame:
    return repetition_data(done)


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
        plot_accuracy(ax, part, key, LIKE_ACCURACY)
        if key == "B":
            for value, colour in shades(sorted(part["B"].unique())).items():
                ax.axhline(_counting(part, value), color=colour, lw=0.9, ls=":")
        ax.set_title(title)
        ax.set_ylabel("accuracy on training-like data")
        ax.legend(loc="lower right", frameon=True, framealpha=1, edgecolor="none")
    return picture


def _counting(table: pd.DataFrame, B: float) -> float:
    return counting(int(table["pairs"].iloc[0]), int(table["tokens"].iloc[0]), float(B))


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for key, none, what in (("B", 1.0, "in-context"), ("p", 0.0, "cross-sample")):
        part = _part(table, key)
        for level in (0.5, 0.9):
            title = f"first row at {level:.0%}, {what} repetition, seeds in order"
            steps = _faster(part, key, none, title, dict.fromkeys(part[key], level))
            if steps.agrees and (shortcut := _shortcut(part, key, level)):
                steps = replace(steps, agrees=None, note=shortcut)
            claims.append(steps)
    part = _part(table, "B")
    shares = {value: _counting(part, value) for value in sorted(set(part["B"]))}
    # What only recall can reach, for the repetition whose counting leaves room for it.
    levels = {value: (1 + share) / 2 for value, share in shares.items() if share < 0.9}
    what = "first row half of the way from counting to 1, in-context repetition, seeds in order"
    if left_out := [f"B = {value:g}" for value in shares if value not in levels]:
        what += f" (without {', '.join(left_out)}, where counting leaves no room)"
    claims.append(_faster(part[part["B"].isin(list(levels))], "B", 1.0, what, levels))
    text = ", ".join(f"B = {value:g}: {share:.2f}" for value, share in shares.items())
    return [*claims, Claim("accuracy of the most frequent value, without recall", text)]


def _shortcut(part: pd.DataFrame, key: str, level: float) -> str:
    """What may score as much without recall of any token: then being sooner there says nothing."""
    if part.empty:
        return ""
    if key == "B":
        return "counting alone may score as much" if _counting(part, part["B"].max()) >= level else ""
    return "recall of the two frequent tokens alone may score as much" if part["p"].max() >= level else ""


def _faster(part: pd.DataFrame, key: str, none: float, what: str, levels: dict[float, float]) -> Claim:
    """Does every run with repetition reach its level before every run without, by more than a row of their curves?"""
    steps, lasts = {}, {}
    for value, rows in part.groupby(key):
        runs = [run for _, run in rows.groupby(["seed", "run_id"])]
        steps[value] = [first_step(run, LIKE_ACCURACY, levels[value]) for run in runs]
        lasts[value] = [float(run["step"].max()) for run in runs]
    text = "; ".join(f"{key} = {value:g}: {step_list(found, lasts[value])}" for value, found in steps.items())
    slowest = [max(found) for value, found in steps.items() if value != none]
    faster = None
    if slowest and none in steps:
        # One that never got there would have at its last step at best.
        base = [min(pair) for pair in zip(steps[none], lasts[none], strict=True)]
        if max(slowest) < min(base) - _row(part, min(base)):
            faster = True
        elif max(slowest) > max(base) + _row(part, max(base)) and np.isfinite(steps[none]).all():
            faster = False
    note = (
        ""
        if faster is not None
        else "not every seed is ahead of all without repetition by more than the distance of two rows"
    )
    note = note if none in steps else "no run without repetition"
    return Claim(what, text, "repetition always speeds up", faster, note)


def _row(part: pd.DataFrame, step: float) -> float:
    """The distance between rows of a curve near a step: the resolution of steps there."""
    each = part.groupby("run_id")["step"].apply(lambda s: np.diff(np.sort(s[s <= step]))[-1:].max(initial=0))
    return float(each.max())
