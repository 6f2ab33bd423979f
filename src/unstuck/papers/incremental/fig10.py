"""Figure 10: the heads of the simplified flow compete, then cooperate.

Simulation of three heads and three patterns, m = 1.7, T = 40, V = 0, attention uniform but for 1e-6. Attention, values
and what each pattern adds to the loss are those of the mirror flow (q = 1) of the published figure; the loss of the
gradient flow on logits (q = 2) stands beside it.
"""

import itertools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.observe.ladder import specialisation
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.theory.heads import HeadFlow

EPS, SEED, UNTIL = 1e-6, 0, 1e5


def plan(profile: Profile) -> list[Job]:
    return [Job("flow of several heads", 2, 4.0)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    parts = []
    for i, q in enumerate((1, 2)):
        flow = HeadFlow(q=q, eps=EPS, seed=SEED)  # type: ignore[arg-type]
        times = flow.stage_times()
        stages, later = flow.trajectory(points=150), flow.trajectory(UNTIL, points=100)
        after = later.t > stages.t[-1]
        t, V, attention = (
            np.concatenate([getattr(stages, name), getattr(later, name)[after]]) for name in ("t", "V", "s")
        )
        parted = flow.loss_of_patterns(V, attention)
        columns = {"q": q, "t": t, "loss": parted.sum(-1)}
        for k in range(3):
            columns[f"loss_{k}"] = parted[:, k]
            for j in range(3):
                columns[f"s_{k}_{j}"] = attention[:, k, j]
                columns[f"v_{k}_{j}"] = V[:, k, j]
        table = pd.DataFrame(columns)
        for j, time in enumerate(times):
            table[f"stage_{j + 1}"] = time
        parts.append(table)
        progress(i + 1, 2)
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(3, width=3.9)
    part = table[(table["q"] == 1) & (table["t"] > 0)]
    for k, style in enumerate(("-", "--", ":")):
        for j, colour in shades(range(3)).items():
            label = f"pattern {j + 1}" if k == 0 else None
            axes[0].plot(part["t"], part[f"s_{k}_{j}"], style, color=colour, lw=1.4, label=label)
            axes[1].plot(part["t"], part[f"v_{k}_{j}"], style, color=colour, lw=1.4)
    axes[0].set(xscale="log", xlabel="time", ylabel="attention", title="three heads: solid, dashed, dotted")
    axes[1].set(xscale="log", xlabel="time", ylabel="value of each pattern", title="mirror flow, q = 1")
    for j, colour in shades(range(3)).items():
        axes[2].plot(part["t"], part[f"loss_{j}"], color=colour, lw=1.4)
    for q, style in ((1, "-"), (2, "--")):
        rows = table[(table["q"] == q) & (table["t"] > 0)]
        axes[2].plot(rows["t"], rows["loss"], style, color="#222222", label=f"all patterns, q = {q}")
    for level in HeadFlow().levels[:-1]:
        axes[2].axhline(level, color="#999999", lw=0.8, ls=":")
    axes[2].set(xscale="log", xlabel="time", ylabel="loss", title="loss of each pattern, in all, and its levels")
    axes[2].legend(loc="center right")
    legend_outside(picture, axes[0])
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for q, first in ((1, 4.56), (2, 21.8)):
        rows = table[table["q"] == q]
        times = [float(rows[f"stage_{j}"].iloc[0]) for j in (1, 2, 3)]
        agrees = abs(times[0] - first) <= 0.02 * first
        claims.append(
            Claim(f"end of the first stage, q = {q}", times[0], first, agrees, "beside the reference (LSODA)")
        )
        claims.append(Claim(f"stages end at, q = {q}", ", ".join(f"{t:.1f}" for t in times), None, None))
        learnt = [_learnt(rows, j) for j in range(3)]
        text = ", ".join(f"{t:.1f}" if np.isfinite(t) else "never" for t in learnt)
        in_order = all(2 * a < b < np.inf for a, b in itertools.pairwise(learnt))
        claims.append(
            Claim(
                f"patterns learnt at, strongest first, q = {q}",
                text,
                "one after the other",
                in_order,
                "half of its loss gone; after: twice as late",
            )
        )
        index = {t: _index(rows, t) for t in (1.3 * times[2], UNTIL)}
        text = ", ".join(f"{value:.2f} at t = {t:,.0f}" for t, value in index.items())
        near = bool(min(index.values()) > 0.9)
        claims.append(Claim(f"specialisation, q = {q}", text, "near 1", near, "" if near else WHY[q]))
    return claims


WHY = {1: "at rest: a head learns the weakest pattern with part of its attention", 2: "still rising, ever more slowly"}


def _learnt(rows: pd.DataFrame, j: int) -> float:
    """The time from which on less than half of what a pattern added to the loss is left; infinite if never."""
    left = (rows[f"loss_{j}"] > 0.5 * rows[f"loss_{j}"].iloc[0]).to_numpy()
    after = int(left.nonzero()[0][-1]) + 1
    return float(rows["t"].iloc[after]) if after < len(rows) else np.inf


def _index(rows: pd.DataFrame, t: float) -> float:
    at = rows.iloc[int((rows["t"] - t).abs().to_numpy().argmin())]
    return specialisation(np.array([[at[f"s_{k}_{j}"] for j in range(3)] for k in range(3)]))
