"""Figure 1b: weights begin to learn before attention does.

Section 2.2. The weight w along W* and the attention α to the relevant token, T = 512, d = 64; optima dashed.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLUE, ORANGE, panels
from unstuck.theory import Flow

T, D = 512, 64


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", 1, 0.1)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    flow = Flow(T, D, kind="reduced")
    end = flow.plateau().time or 0.0
    t = np.unique(np.concatenate([np.linspace(0, 1.6 * end, 400), np.linspace(0.85 * end, 1.05 * end, 400)]))
    path = flow.trajectory(times=t)
    progress(1, 1)
    return pd.DataFrame({"t": t, "w": path.w, "alpha": path.alpha, "plateau": end})


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.0)
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    ax.plot(table["t"], table["w"], color=BLUE)
    right.plot(table["t"], table["alpha"], color=ORANGE)
    ax.axhline(math.sqrt(D), color=BLUE, ls="--", lw=1)
    right.axhline(1.0, color=ORANGE, ls="--", lw=1)
    ax.set(
        xlabel="training time (steps × lr)", title=f"T = {T}, d = {D}; optima dashed", ylim=(0, 12.5), xlim=(0, None)
    )
    right.set_ylim(0, 12.5 / 9.5)
    ax.set_ylabel("weight w along W*", color=BLUE)
    right.set_ylabel("attention α to the relevant token", color=ORANGE)
    ax.axvline(table["plateau"].iloc[0], color="#999999", lw=0.8, ls=":")
    ax.text(table["plateau"].iloc[0] * 0.985, 12.1, "loss 0.1", fontsize=8, color="#666666", ha="right", va="top")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    end = table["plateau"].iloc[0]
    w = float(np.interp(0.1 * math.sqrt(D), table["w"], table["t"])) / end  # w rises up to here
    alpha = float(np.interp(0.1, table["alpha"], table["t"])) / end
    return [
        Claim(
            "w moves before α",
            f"w is at a tenth of its optimum after {w:.0%} of the plateau, α after {alpha:.0%}",
            "feedforward learning precedes attention",
            w < alpha,
        )
    ]
