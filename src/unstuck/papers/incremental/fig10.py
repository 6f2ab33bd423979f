"""Figure 10: the heads of the simplified flow compete, then cooperate.

Gradient-flow simulation of three heads and three patterns, m = 1.7, T = 40, V = 0, attention uniform but for 1e-6. The
published figure uses the mirror flow (q = 1); the gradient flow on logits (q = 2) stands beside it.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.observe.ladder import specialisation
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.theory.heads import HeadFlow

EPS, SEED = 1e-6, 0


def plan(profile: Profile) -> list[Job]:
    return [Job("flow of several heads", 2, 4.0)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    parts = []
    for i, q in enumerate((1, 2)):
        flow = HeadFlow(q=q, eps=EPS, seed=SEED)  # type: ignore[arg-type]
        times = flow.stage_times()
        path = flow.trajectory(points=120)
        columns = {"q": q, "t": path.t, "loss": path.loss}
        for k in range(3):
            for j in range(3):
                columns[f"s_{k}_{j}"] = path.s[:, k, j]
                columns[f"v_{k}_{j}"] = path.V[:, k, j]
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
    for q, style in ((1, "-"), (2, "--")):
        rows = table[(table["q"] == q) & (table["t"] > 0)]
        axes[2].plot(rows["t"], rows["loss"], style, color="#222222", label=f"q = {q}")
    for level in HeadFlow().levels[:-1]:
        axes[2].axhline(level, color="#999999", lw=0.8, ls=":")
    axes[2].set(xscale="log", xlabel="time", ylabel="loss", title="loss, and its levels")
    axes[2].legend(loc="lower left")
    legend_outside(picture, axes[0])
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for q, first in ((1, 4.56), (2, 21.8)):
        rows = table[table["q"] == q]
        times = [float(rows[f"stage_{j}"].iloc[0]) for j in (1, 2, 3)]
        claims.append(Claim.number(f"end of the first stage, q = {q}", times[0], first, 0.02 * first))
        text = ", ".join(f"{t:.1f}" for t in times)
        claims.append(Claim(f"stages end at, q = {q}", text, "one after the other", times == sorted(times)))
        mass = np.array([[rows[f"s_{k}_{j}"].iloc[-1] for j in range(3)] for k in range(3)])
        note = "the weakest pattern is learnt with half of a head's attention"
        index = round(specialisation(mass), 3)
        claims.append(Claim(f"specialisation at the end, q = {q}", index, "near 1", bool(index > 0.9), note))
    return claims
