"""Figure 10: with cross-sample repetition the frequent direction learns first and pulls attention along.

A.4. Three-variable flow, T = 512, d = 64: loss on the training distribution and on clean data, w and w~, α for
several p.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.curve import TEST_LOSS
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.theory import Flow

T, D, P = 512, 64, [0.0, 0.1, 0.2, 0.4, 0.8]


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", len(P), 0.2)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    parts = []
    for i, p in enumerate(P):
        flow = Flow(T, D, p=p, kind="reduced")
        end = flow.plateau().time or 0.0
        t = np.unique(np.concatenate([np.linspace(0, 6500, 300), np.linspace(0.6 * end, 1.1 * end, 250)]))
        path = flow.trajectory(times=t)
        if path.w_tilde is None:  # p = 0: every direction is like every other
            w, w_tilde = path.w / math.sqrt(D), path.w / math.sqrt(D)
        else:
            w, w_tilde = path.w / math.sqrt(D - 1), path.w_tilde
        columns = {"loss": path.loss, TEST_LOSS: path.test_loss, "w": w, "w_tilde": w_tilde, "alpha": path.alpha}
        parts.append(pd.DataFrame({"p": p, "t": t, "plateau": end, **columns}))
        progress(i + 1, len(P))
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, middle, right) = panels(3, width=3.9)
    for p, colour in shades(P).items():
        c = table[table["p"] == p]
        left.plot(c["t"], c["loss"], color=colour, label=f"p = {p:g}")
        left.plot(c["t"], c[TEST_LOSS], color=colour, ls="--", lw=1.2)
        middle.plot(c["t"], c["w"], color=colour)
        middle.plot(c["t"], c["w_tilde"], color=colour, ls="--", lw=1.2)
        right.plot(c["t"], c["alpha"], color=colour)
    left.plot(
        [],
        [],
        "--",
        color="#444444",
        lw=1.2,
        label="loss: on clean data\nweights: $\\tilde{w}$, the\nfrequent direction",
    )
    left.set(ylabel="loss", ylim=(0, 0.53))
    middle.set(ylabel="weights w/√(d-1) and $\\tilde{w}$, optimum 1", ylim=(0, None))
    right.set(ylabel="attention α to the relevant token", ylim=(0, 1))
    for ax in (left, middle, right):
        ax.set(xlabel="training time (steps × lr)", xlim=(0, 6500))
    legend_outside(picture, left)
    picture.suptitle(f"Cross-sample repetition, T = {T}, d = {D}", fontsize=10.5)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    ends = table.groupby("p")["plateau"].first()
    times = " / ".join(f"{ends[p]:.0f}" for p in P)
    leads = []
    for p in P[1:]:
        c = table[table["p"] == p]
        leads.append(float(np.interp(0.3, c["w"], c["t"]) / np.interp(0.3, c["w_tilde"], c["t"])))
    return [
        Claim(
            "repetition speeds up emergence, also on clean data",
            f"plateaus {times} for p = {' / '.join(f'{p:g}' for p in P)}",
            "faster with p",
            bool(ends[P[1]] < ends[P[0]] and ends[P[2]] < ends[P[1]] and ends[P[3]] < ends[P[2]]),
            "too much of it slows the other directions: p = 0.8 takes longer than p = 0.4"
            if ends[0.8] > ends[0.4]
            else "",
        ),
        Claim(
            "the frequent direction learns first",
            f"w~ reaches 0.3 up to {max(leads):.1f} times sooner than the other directions",
            "w~ learns faster",
            min(leads) > 1,
        ),
    ]
