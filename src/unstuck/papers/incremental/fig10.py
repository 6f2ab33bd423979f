"""Figure 10: the heads of the simplified flow compete, then cooperate.

Simulation of three heads and three patterns, m = 1.7, T = 40, V = 0, attention uniform but for 1e-6. Attention, values
and what each pattern adds to the loss are those of the mirror flow (q = 1) of the published figure; the loss of the
gradient flow on logits (q = 2) stands beside it.
"""

import itertools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.probes.ladder import specialisation
from unstuck.theory.heads import HeadFlow

from ._judge import numbers

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


#: By q: when the loss is half-way between two levels, the specialisation index at rest, own attention of each pattern's
#: head, computed from the start of the authors' notebook; the later times differ by 25% between seeds of that start.
REFERENCE = {1: ((4.55, 51.3, 235.7), 0.644, (1.00, 0.80, 0.48)), 2: ((21.8, 326.0, 2921.0), 0.745, None)}


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for q, (theirs, index, attention) in REFERENCE.items():
        rows = table[table["q"] == q]
        times = [float(rows[f"stage_{j}"].iloc[0]) for j in (1, 2, 3)]
        first = abs(times[0] - theirs[0]) <= 0.02 * theirs[0]
        source = "theirs: computed from the start of the authors' notebook"
        claims.append(Claim(f"end of the first stage, q = {q}", times[0], theirs[0], first, source))
        later = ", ".join(f"{t:.1f}" for t in times[1:])
        paper = ", ".join(f"{t:.1f}" for t in theirs[1:])
        claims.append(Claim(f"ends of later stages, q = {q}", later, paper, None, "they differ between seeds"))
        learnt = [_learnt(rows, j) for j in range(3)]
        text = ", ".join(f"{t:.1f}" if np.isfinite(t) else "never" for t in learnt)
        in_order = all(a < b < np.inf for a, b in itertools.pairwise(learnt))
        claims.append(
            Claim(f"patterns learnt at, q = {q}", text, "one after the other", in_order, "half of its loss gone")
        )
        mass = _attention(rows)
        name = f"specialisation index at t = {UNTIL:,.0f}, q = {q}"
        claims.append(Claim(name, specialisation(mass), index, None, source))
        if attention is not None:
            heads, patterns = linear_sum_assignment(-mass)
            own = sorted(mass[heads, patterns], reverse=True)
            claims.append(Claim(f"own attention at rest, q = {q}", numbers(own), numbers(attention), None, source))
    return claims


def _learnt(rows: pd.DataFrame, j: int) -> float:
    """The time from which on less than half of what a pattern added to the loss is left; infinite if never."""
    left = (rows[f"loss_{j}"] > 0.5 * rows[f"loss_{j}"].iloc[0]).to_numpy()
    after = int(left.nonzero()[0][-1]) + 1
    return float(rows["t"].iloc[after]) if after < len(rows) else np.inf


def _attention(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Attention of each head on each pattern's position at the end, (heads, patterns)."""
    last = rows.iloc[-1]
    return np.array([[last[f"s_{k}_{j}"] for j in range(3)] for k in range(3)])
