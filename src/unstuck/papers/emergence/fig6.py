"""Figure 6: the reduced loss landscape with the gradient flow on it.

A.3.1. T = 256, d = 64, no repetition; the flow starts at the origin.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import panels
from unstuck.theory import Flow, TwoVariableLoss

T, D, POINTS = 256, 64, 121


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", 1, 0.2)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    w, delta_a = np.meshgrid(np.linspace(-2, 14, POINTS), np.linspace(-2, 12, POINTS))
    value = TwoVariableLoss(T, D).value(w, delta_a)
    landscape = pd.DataFrame({"part": "landscape", "w": w.ravel(), "delta_a": delta_a.ravel(), "loss": value.ravel()})
    flow = Flow(T, D, kind="reduced")
    path = flow.trajectory(until=20 * (flow.plateau().time or 0.0))
    progress(1, 1)
    line = pd.DataFrame({"part": "flow", "t": path.t, "w": path.w, "delta_a": path.delta_a, "loss": path.loss})
    return pd.concat([landscape, line], ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.4, height=4.0)
    grid = table[table["part"] == "landscape"]
    shape = (POINTS, POINTS)
    w, a, loss = (grid[c].to_numpy().reshape(shape) for c in ("w", "delta_a", "loss"))
    levels = np.linspace(-3, 0, 25)
    filled = ax.contourf(w, a, np.log10(np.clip(loss, 1e-3, 1)), levels=levels, cmap="viridis", extend="both")
    bar = picture.colorbar(filled, ax=ax, ticks=[-3, -2, -1, 0], label="loss")
    bar.ax.set_yticklabels(["$10^{-3}$", "$10^{-2}$", "$10^{-1}$", "1"])
    line = table[table["part"] == "flow"]
    ax.plot(line["w"], line["delta_a"], color="white", lw=2)
    ax.plot(0, 0, "x", color="white", ms=9, mew=2.2)
    ax.axvline(math.sqrt(D), color="white", ls=":", lw=1)
    ax.text(math.sqrt(D) + 0.15, -1.7, "w = √d", color="white", fontsize=8.5)
    ax.set(xlabel="weight w along W*", ylabel="score gap Δa", title=f"Reduced loss and its flow, T = {T}, d = {D}")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    w = table.loc[table["part"] == "flow", "w"].to_numpy()
    return [
        Claim(
            "w overshoots, then comes down",
            f"w peaks at {w.max():.2f}, ends at {w[-1]:.2f}; √d = {math.sqrt(D):g}",
            "after the transition w decreases",
            bool(w.max() > math.sqrt(D) and np.all(np.diff(w[w.argmax() :]) <= 0)),
        )
    ]
