"""Figure B: each head's attention on each group, and what it says about it.

Small start of the queries (1e-3), Frobenius-orthogonal features: attention mass of every head on every group, and the
alignment <V_head, A_k> / |A_k|² of its value matrix with every feature, over training.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._ladder import ladder_claims, ladder_data, minimal_runs
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import legend_outside, panels, shades

STYLES = ("-", "--", ":", "-.")


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, changes={"model.query": 1e-3, "model.value": 0.0, "task.features": "frobenius"})


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.6)
    groups = [c.split("_")[0].removeprefix("group") for c in table if c.startswith("group") and c.endswith("_0_0")]
    heads = [c.rsplit("_", 1)[1] for c in table if c.startswith("group1_0_")]
    for group, colour in shades(groups).items():
        for head, style in zip(heads, STYLES, strict=False):
            label = f"group {group}" if head == heads[0] else None
            left.plot(table["step"], table[f"group{group}_0_{head}"], style, color=colour, lw=1.4, label=label)
            right.plot(table["step"], table[f"align_{head}_{group}"], style, color=colour, lw=1.4)
    left.set(xlabel="step", ylabel="attention on the group", ylim=(0, 1.02), title="heads: solid, dashed, dotted")
    right.set(xlabel="step", ylabel=r"$\langle V, A_k \rangle / |A_k|^2$", title="alignment of values")
    legend_outside(picture, left)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    return ladder_claims(table)
