"""Figure B: each head's attention on each group, and what it says about it.

Small start of the queries (1e-3), Frobenius-orthogonal features: attention mass of every head on every group, and the
inner product <V_head, A_k> of its value matrix with every feature, over training.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims
from unstuck.papers.incremental._ladder import ladder_data, minimal_runs, stages_of
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
            right.plot(table["step"], _inner(table, head, group), style, color=colour, lw=1.4)
    left.set(xlabel="step", ylabel="attention on the group", ylim=(0, 1.02), title="heads: solid, dashed, dotted")
    right.set(xlabel="step", ylabel=r"$\langle V, A_k \rangle$", title="alignment of values")
    legend_outside(picture, left)
    return picture


def _inner(table: pd.DataFrame, head: str, group: str) -> pd.Series:
    """<V, A_k> from <V, A_k> / |A_k|²: the features are m^(groups - k) times an orthogonal matrix."""
    groups = sum(c.startswith(f"align_{head}_") for c in table)
    return table[f"align_{head}_{group}"] * table["m"] ** (2 * (groups - int(group))) * table["d"]


def compare(table: pd.DataFrame) -> list[Claim]:
    found = stages_of(table)
    heads = [c.split("_")[1] for c in table if c.startswith("align_") and c.endswith("_1")]
    groups = [c.split("_")[2] for c in table if c.startswith("align_0_")]
    near = table.iloc[int((table["step"] - found.rungs[0].nearest).abs().to_numpy().argmin())]
    first = [near[f"align_{head}_1"] for head in heads]
    alike = f"{min(first) / max(first):.2f} of the largest (step {near['step']:.0f})"
    last = table.iloc[-1]
    owners = {g: heads[int(np.argmax([last[f"align_{h}_{g}"] for h in heads]))] for g in groups}
    says = ", ".join(f"group {g}: head {int(h) + 1}" for g, h in owners.items())
    return [
        *ladder_claims(table),
        Claim(
            "smallest <V, A_1> of a head when nearest to rung 1",
            alike,
            "heads say the same",
            min(first) > 0.9 * max(first),
        ),
        Claim(
            "head with the largest <V, A_k> at the end",
            says,
            "one head a group",
            len(set(owners.values())) == len(groups),
        ),
    ]
