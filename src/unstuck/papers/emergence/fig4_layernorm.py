"""fig4-layernorm: recall with and without layer normalisation.

Table 1 of the paper says that there is none, Section 3.2 that there is. Four sizes of Figure 4's grid with both, and
the paper's own law for the steps to 5% beside them.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.plateaus import explain_triangles, plot_runs
from unstuck.papers.style import BLUE, ORANGE, PAPER_GREY, log_steps, panels

from ._recall import SMALL, UNTIL_50, crossing, guessed, layers_claim, paper_law, with_layers

IN_PARTS = True  # runs are compared one by one, with and without
NORMS = {"without": False, "with": True}


def runs(profile: Profile) -> list[TieredRun]:
    tokens, pairs, seeds, fixed = {
        "quick": ([16], [3, 4], [0], SMALL),
        "cpu": ([32, 64], [4, 8], [0, 1], {"train.max_steps": 30_000}),
        "paper": ([128, 256], [16, 32], [0, 1, 2], {"train.max_steps": 200_000}),
    }[profile]
    fixed = {**fixed, "train.thresholds": UNTIL_50}
    return grid("recall", 2, seeds, fixed, task__tokens=tokens, task__pairs=pairs, model__layer_norm=[False, True])


def data(done: Finished) -> pd.DataFrame:
    return with_layers(done.results, done.store)


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.4, height=3.7)
    cells = sorted({(t, p) for t, p in zip(table["tokens"], table["pairs"], strict=True)})
    for ax, threshold in zip(axes, (0.5, 0.05), strict=True):
        part = crossing(table, threshold)
        for norm, colour, label in ((False, BLUE, "without layer norm"), (True, ORANGE, "with layer norm")):
            rows = part[part["layer_norm"] == norm]
            places = zip(rows["tokens"], rows["pairs"], rows["seed"], strict=True)  # seeds a little apart
            x = [cells.index((t, p)) + (0.1 if norm else -0.16) + 0.06 * seed for t, p, seed in places]
            plot_runs(ax, x, rows, colour, label)
        explain_triangles(ax, part)
        if threshold == 0.05:
            ax.plot(
                range(len(cells)), [paper_law(*c) for c in cells], "_", ms=24, color=PAPER_GREY, label="paper's law"
            )
        ax.set_xticks(range(len(cells)), [f"{t} tokens\n{p} pairs" for t, p in cells])
        ax.set(ylabel=f"steps to {threshold:.0%} accuracy")
        ax.margins(y=0.15)
        log_steps(ax, within=1000)
    for ax in axes:
        ax.legend(loc="lower right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    emerged = table.groupby("layer_norm")["status"].agg(lambda s: f"{(s == 'emerged').sum()} of {len(s)}")
    text = ", ".join(f"{count} {'with' if norm else 'without'}" for norm, count in emerged.items())
    claims = [Claim("runs that got to 50%", text)]
    for threshold in (0.5, 0.05):
        both = _side_by_side(crossing(table, threshold))
        if len(both):
            what = f"steps to {threshold:.0%} with layer norm over without"
            claims.append(Claim(what, _ratio(both), note=guessed(table) if threshold == 0.05 else ""))
    for name, norm in NORMS.items():
        claims += layers_claim(table[table["layer_norm"] == norm], f", {name} layer norm")
    return [*claims, *_beside_paper(crossing(table, 0.05), guessed(table))]


def _side_by_side(part: pd.DataFrame) -> pd.DataFrame:
    """Plateaus with and without layer norm, a row for each size and seed; infinite where a run never got there, with
    the steps that it had."""
    found = {}
    for name, norm in NORMS.items():
        mine = part[part["layer_norm"] == norm].set_index(["tokens", "pairs", "seed"])
        found[name] = mine["plateau_steps"].where(mine["status"] == "emerged", np.inf)
        found[f"steps {name}"] = mine["steps"]
    return pd.DataFrame(found).dropna()


def _ratio(both: pd.DataFrame) -> str:
    """With over without, where both got there; and where one alone did."""
    there = {name: np.isfinite(both[name]) for name in NORMS}
    parts = []
    ratio = (both["with"] / both["without"])[there["with"] & there["without"]]
    if len(ratio):
        mean = np.exp(np.log(ratio).mean())
        parts.append(f"{mean:.2f} times (from {ratio.min():.2f} to {ratio.max():.2f}, {len(ratio)} pairs of runs)")
    least = (both["steps with"] / both["without"])[there["without"] & ~there["with"]]
    if len(least):
        parts.append(f"in {len(least)} pairs only the run without got there (at least {least.min():.2f} times)")
    most = (both["with"] / both["steps without"])[there["with"] & ~there["without"]]
    if len(most):
        parts.append(f"in {len(most)} pairs only the run with it got there (at most {most.max():.2f} times)")
    return "; ".join(parts) or "neither got there"


def _beside_paper(part: pd.DataFrame, note: str) -> list[Claim]:
    """How far each lies from the paper's law for the steps to 5%, and which is closer: on average over the sizes and
    seeds at which both got there, in logarithms and whatever the sign."""
    claims, off, found = [], {}, []
    both = _side_by_side(part)
    there = np.isfinite(both["with"]) & np.isfinite(both["without"])
    for name, norm in NORMS.items():
        mine = part[(part["layer_norm"] == norm) & (part["status"] == "emerged")]
        if mine.empty:
            continue
        found.append(name)
        logs = np.log(mine["plateau_steps"] / paper_law(mine["tokens"], mine["pairs"]))
        if there.any():
            tokens, pairs = (both.index[there].get_level_values(k).to_numpy() for k in ("tokens", "pairs"))
            off[name] = float(np.abs(np.log(both.loc[there, name].to_numpy() / paper_law(tokens, pairs))).mean())
        text = f"{np.exp(logs.mean()):.2f} times (from {np.exp(logs.min()):.2f} to {np.exp(logs.max()):.2f})"
        claims.append(Claim(f"steps to 5% {name} layer norm over the paper's law", text, "1", None, note))
    if len(found) == 1:
        text = f"{found[0]} layer norm (of the others none got there)"
        claims.append(Claim("closer to the paper", text, "Table 1: without; 3.2: with", None, note))
    elif off:
        closer = min(off, key=lambda name: off[name])
        text = f"{closer} layer norm ({', '.join(f'{n}: {np.exp(x):.2f} times off' for n, x in off.items())})"
        some = "" if there.all() else f", at the {there.sum()} of {len(there)} sizes and seeds where both got there"
        claims.append(Claim("closer to the paper", text + some, "Table 1: without; 3.2: with", None, note))
    return claims
