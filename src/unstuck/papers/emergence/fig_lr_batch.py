"""fig-lr-batch: how the plateau depends on learning rate and batch size.

Not in the paper; an engineer's first question. d = 16, T = 32, the paper's Transformer and Adam.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import fit_or_none, plot_plateaus
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import note, panels

RATES, BATCHES = [3e-5, 1e-4, 3e-4, 1e-3], [8, 32, 128]


def runs(profile: Profile) -> list[TieredRun]:
    fixed = {"task.T": 16, "task.d": 8} if profile == "quick" else {"task.T": 32, "task.d": 16}
    rates = [1e-4, 3e-4] if profile == "quick" else RATES
    batches = [8, 32] if profile == "quick" else BATCHES
    seeds = {"quick": [0], "cpu": [0, 1], "paper": [0, 1, 2, 3, 4]}[profile]
    fixed = {**fixed, "train.max_steps": 20_000}
    return grid("regression", 2, seeds, fixed, optim__lr=rates, train__batch=batches)


def draw(table: pd.DataFrame) -> Figure:
    law = fit_or_none(table, "lr + batch")
    picture, (ax,) = panels(width=5.0, height=3.8)
    plot_plateaus(ax, table, x="lr", by="batch", law=law, xlabel="learning rate", label="batch")
    ax.legend(loc="lower left")
    ax.set_title(f"Transformer, T = {table['T'].iloc[0]}, d = {table['d'].iloc[0]}")
    if law is not None:
        text = f"lr^{law.exponents['lr']:.2f} batch^{law.exponents['batch']:.2f}, R² = {law.r2:.3f}"
        note(ax, text, at=(0.97, 0.97), ha="right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    law = fit_or_none(table, "lr + batch")
    claims = []
    if law is not None:
        for term in ("lr", "batch"):
            low, high = law.intervals[term]
            ours = f"{law.exponents[term]:.2f} ({low:.2f} to {high:.2f})"
            claims.append(Claim(f"exponent of {term}", ours, None, None))
    lost = table[table["status"] != "emerged"]
    claims.append(Claim("runs that did not emerge", f"{len(lost)} of {len(table)}", None, None))
    return claims
