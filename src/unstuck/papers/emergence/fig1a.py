"""Figure 1a: the reduced dynamics sit on a plateau, then drop.

Section 2.2. Loss against time for several d at T = 512, no repetition.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.theory import Flow

T, D = 512, [16, 32, 64, 128, 256]


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", len(D), 0.1)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    parts = []
    for i, d in enumerate(D):
        flow = Flow(T, d, kind="reduced")
        end = flow.plateau().time or 0.0
        t = np.unique(np.concatenate([np.linspace(0, 1.6 * end, 300), np.linspace(0.85 * end, 1.05 * end, 200)]))
        path = flow.trajectory(times=t)
        parts.append(pd.DataFrame({"d": d, "t": t, "loss": path.loss, "plateau": end}))
        progress(i + 1, len(D))
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.6)
    for d, colour in shades(D).items():
        curve = table[table["d"] == d]
        ax.plot(curve["t"], curve["loss"], color=colour, label=f"d = {d}")
    ax.axhline(0.1, color="#999999", lw=0.8, ls=":")
    ax.text(0.01, 0.104, "threshold 0.1", fontsize=7.5, color="#666666", ha="left", transform=ax.get_yaxis_transform())
    ax.set(xlabel="training time (steps × lr)", ylabel="loss", title=f"Reduced dynamics, T = {T}", ylim=(0, 0.53))
    ax.set_xlim(0, 1.12 * table["plateau"].max())
    legend_outside(picture, ax)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    half, drop = _shape(table)
    return [
        Claim(
            "plateau, then drop",
            f"half-way the loss is still {half:.3f} or more; from 0.45 to 0.1 takes at most {drop:.0%} of the time",
            "plateau, then sharp drop",
            bool(half > 0.48 and drop < 0.2),
        )
    ]


def _shape(table: pd.DataFrame) -> tuple[float, float]:
    """Worst over d: the loss half-way, and the share of the plateau in which the loss falls from 0.45 to 0.1."""
    halves, drops = [], []
    for _, c in table.groupby("d"):
        end = c["plateau"].iloc[0]
        halves.append(float(np.interp(end / 2, c["t"], c["loss"])))
        drops.append(1 - float(np.interp(-0.45, -c["loss"], c["t"])) / end)
    return min(halves), max(drops)
