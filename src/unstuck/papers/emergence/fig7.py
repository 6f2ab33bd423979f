"""Figure 7: the early dynamics and their linear approximation.

A.3.2. d = 512, several T, no repetition. In units of 1/λ = sqrt(d) T the linear approximation is one curve: w =
sinh λt, Δa = cosh λt - 1, and the loss has fallen by (λ/2) sinh 2λt.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLACK, panels, shades
from unstuck.theory import Flow, rate

D, T = 512, [64, 256, 1024, 4096]
END = 1.35  # in units of 1/λ; the blow-up is at sqrt(π/2) = 1.2533, the plateau's end a little later


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", len(T), 0.1)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    parts = []
    for i, length in enumerate(T):
        flow = Flow(length, D, kind="reduced")
        lam = rate(flow)
        x = np.linspace(0, END, 271)
        path = flow.trajectory(times=x / lam)
        fallen = (0.5 - path.loss) / (lam / 2)
        parts.append(pd.DataFrame({"T": length, "lambda_t": x, "w": path.w, "delta_a": path.delta_a, "fallen": fallen}))
        progress(i + 1, len(T))
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(3, width=3.7)
    x = np.linspace(0, END, 200)
    linear = {"w": np.sinh(x), "delta_a": np.cosh(x) - 1, "fallen": np.sinh(2 * x)}
    labels = {"w": "weight w", "delta_a": "score gap Δa", "fallen": "fall of the loss / (λ/2)"}
    tops = {"w": 4.0, "delta_a": 5.0, "fallen": 20.0}
    for ax, (name, label) in zip(axes, labels.items(), strict=True):
        for length, colour in shades(T).items():
            curve = table[table["T"] == length]
            ax.plot(curve["lambda_t"], curve[name], color=colour, label=f"T = {length}")
        ax.plot(x, linear[name], "--", color=BLACK, lw=1.3, label="linear approximation")
        ax.axvline(math.sqrt(math.pi / 2), color="#999999", lw=0.8, ls=":")
        ax.set(xlabel="time in units of √d T", ylabel=label, ylim=(0, tops[name]), xlim=(0, END))
    axes[0].legend(loc="upper left")
    axes[1].text(1.235, 4.9, "blow-up √(π/2)", rotation=90, fontsize=8, color="#666666", ha="right", va="top")
    picture.suptitle(f"Early dynamics, d = {D}", fontsize=10.5)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    curve = table[(table["T"] == T[-1]) & (table["lambda_t"] > 0.05)]
    off = np.abs(curve["fallen"] / np.sinh(2 * curve["lambda_t"]) - 1)
    until = float(curve.loc[off > 0.1, "lambda_t"].min())
    share = until / math.sqrt(math.pi / 2)
    return [
        Claim(
            "the linear approximation matches early",
            f"the fall of the loss is within 10% until λt = {until:.2f}, {share:.0%} of the plateau (T = {T[-1]})",
            "matches the early dynamics",
            share > 0.2,
            "beyond it Δa runs ahead: attention is exponential in it",
        )
    ]
