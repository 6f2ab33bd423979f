"""fig4-layernorm: recall with and without layer normalisation.

Table 1 of the paper says that there is none, Section 3.2 that there is. Four sizes of Figure 4's grid with both, and
the paper's own law for the steps to 5% beside them.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._recall import SMALL, UNTIL_50, crossing
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import BLUE, ORANGE, PAPER_GREY, panels


def runs(profile: Profile) -> list[TieredRun]:
    tokens, pairs, seeds, fixed = {
        "quick": ([16], [3, 4], [0], SMALL),
        "cpu": ([32, 64], [4, 8], [0, 1], {"train.max_steps": 30_000}),
        "paper": ([128, 256], [16, 32], [0, 1, 2], {"train.max_steps": 200_000}),
    }[profile]
    fixed = {**fixed, "train.thresholds": UNTIL_50}
    return grid("recall", 2, seeds, fixed, task__tokens=tokens, task__pairs=pairs, model__layer_norm=[False, True])


def law(tokens: Any, pairs: Any) -> Any:
    """The paper's steps to 5%."""
    return 0.55 * tokens**0.79 * pairs**2.25


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.4, height=3.7)
    cells = sorted({(t, p) for t, p in zip(table["tokens"], table["pairs"], strict=True)})
    for ax, threshold in zip(axes, (0.5, 0.05), strict=True):
        part = crossing(table, threshold)
        for norm, colour, label in ((False, BLUE, "without"), (True, ORANGE, "with layer norm")):
            rows = part[part["layer_norm"] == norm]
            x = [cells.index((t, p)) + (0.1 if norm else -0.1) for t, p in zip(rows.tokens, rows.pairs, strict=True)]
            emerged = (rows["status"] == "emerged").to_numpy()
            ax.plot(np.array(x)[emerged], rows["plateau_steps"][emerged], "o", ms=5, color=colour, label=label)
            ax.plot(np.array(x)[~emerged], rows["steps"][~emerged], "^", ms=6, mfc="none", color=colour)
        if threshold == 0.05:
            ax.plot(range(len(cells)), [law(*c) for c in cells], "_", ms=24, color=PAPER_GREY, label="paper's law")
        ax.set_xticks(range(len(cells)), [f"{t} tokens\n{p} pairs" for t, p in cells])
        ax.set(yscale="log", ylabel=f"steps to {threshold:.0%} accuracy")
        ax.margins(y=0.15)
    axes[1].legend(loc="lower right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    emerged = table.groupby("layer_norm")["status"].agg(lambda s: f"{(s == 'emerged').sum()} of {len(s)}")
    text = ", ".join(f"{count} {'with' if norm else 'without'}" for norm, count in emerged.items())
    claims = [Claim("runs that got to 50%", text, None, None)]
    pairs = {threshold: _matched(crossing(table, threshold)) for threshold in (0.5, 0.05)}
    for threshold, both in pairs.items():
        if len(both):
            ratio = both[True] / both[False]
            text = f"{np.exp(np.log(ratio).mean()):.2f} times (from {ratio.min():.2f} to {ratio.max():.2f}, "
            text += f"{len(ratio)} pairs of runs)"
            claims.append(Claim(f"steps to {threshold:.0%} with layer norm over without", text, None, None))
    both = pairs[0.05]
    if len(both):
        paper = law(both.index.get_level_values("tokens").to_numpy(), both.index.get_level_values("pairs").to_numpy())
        factor = {norm: float(np.exp(np.log(both[norm] / paper).mean())) for norm in (False, True)}
        for norm, value in factor.items():
            name = "with" if norm else "without"
            claims.append(Claim(f"steps to 5% {name} layer norm over the paper's law", f"{value:.2f} times", "1", None))
        closer = "without" if abs(np.log(factor[False])) < abs(np.log(factor[True])) else "with"
        claims.append(Claim("closer to the paper", f"{closer} layer norm", "Table 1: without; 3.2: with", None))
    return claims


def _matched(part: pd.DataFrame) -> pd.DataFrame:
    """Plateaus without and with layer norm, a row for each size and seed of which both got there."""
    both = part.pivot_table("plateau_steps", ["tokens", "pairs", "seed"], "layer_norm").dropna()
    return both if {True, False} <= set(both) else both.iloc[:0]
