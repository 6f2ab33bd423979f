"""text-layernorm: induction heads with and without layer normalisation and perceptrons.

The papers' models have no layer normalisation, language models do. The factor of the steps that each brings, with its
95% interval over seeds (Welch's, on logarithms).
"""

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import explain_triangles, plot_runs
from unstuck.papers.style import BLUE, ORANGE, log_steps, panels

from ._runs import BURST, LONG, SMALL, blind_seeds

ALSO = ("mlp",)
NAMES: Mapping[tuple[bool, bool], str] = {
    (False, False): "attention only",
    (False, True): "with perceptrons",
    (True, False): "layer norm",
    (True, True): "layer norm,\nperceptrons",
}


def runs(profile: Profile) -> list[TieredRun]:
    fixed = {"task.burst": BURST, "train.max_steps": LONG} | (SMALL if profile == "quick" else {})
    seeds = [0] if profile == "quick" else blind_seeds(5)
    return grid("text", 1, seeds, fixed, model__layer_norm=[False, True], model__mlp=[False, True])


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.4, height=3.7)
    for i, (layer_norm, mlp) in enumerate(NAMES):
        rows = table[(table["layer_norm"] == layer_norm) & (table["mlp"] == mlp)]
        x = i + 0.06 * (rows["seed"] - rows["seed"].mean())
        plot_runs(ax, x, rows, ORANGE if layer_norm else BLUE, None)
    explain_triangles(ax, table)
    ax.set_xticks(range(len(NAMES)), list(NAMES.values()))
    ax.set(ylabel="steps until heads form (copying 2 nats)")
    ax.margins(y=0.2)
    log_steps(ax, within=1000)
    if (table["status"] != "emerged").any():
        ax.legend()
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = runs_in(table)
    for (layer_norm, mlp), name in NAMES.items():
        rows = table[(table["layer_norm"] == layer_norm) & (table["mlp"] == mlp)]
        formed = rows[rows["status"] == "emerged"]["plateau_steps"]
        mean = f"{np.exp(np.log(formed).mean()):,.0f}, " if len(formed) else ""
        claims.append(Claim(f"steps, {name.replace(chr(10), ' ')}", f"{mean}{len(formed)} of {len(rows)} formed"))
    for fixed, value in itertools.product(("mlp", "layer_norm"), (False, True)):
        varied = "layer_norm" if fixed == "mlp" else "mlp"
        part = table[table[fixed] == value]
        what = {"layer_norm": "layer norm", "mlp": "perceptrons"}
        where = f"{'with' if value else 'without'} {what[fixed]}"
        claims.append(Claim(f"steps with {what[varied]} over without, {where}", factor(part, varied)))
    return claims


def factor(table: pd.DataFrame, switch: str) -> str:
    """The ratio of geometric means with and without, and its 95% interval; a bound if runs of one kind did not form."""
    groups = [table[table[switch] == on] for on in (True, False)]
    if any(len(g) < 2 for g in groups):
        return "too few runs yet"
    on, off = (np.log(g["plateau_steps"].fillna(g["steps"]).to_numpy(dtype=float)) for g in groups)
    late = [int((g["status"] != "emerged").sum()) for g in groups]
    if all(late):
        return "runs of both kinds did not form"
    if any(late):
        which = f"{'with' if late[0] else 'without'}, {sum(late)} did not form by their last step"
        return f"{'at least' if late[0] else 'at most'} {np.exp(on.mean() - off.mean()):.2f} times ({which})"
    interval = stats.ttest_ind(on, off, equal_var=False).confidence_interval(0.95)
    low, high = np.exp([interval.low, interval.high])
    return f"{np.exp(on.mean() - off.mean()):.2f} times ({low:.2f} to {high:.2f})"
