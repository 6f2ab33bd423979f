"""varied-settings: plateaus of regression with settings of the model and of training drawn at random.

The laws of Figure 3 hold one architecture, learning rate and batch. Here each run draws its own, with its task's sizes,
from its seed: how does the plateau depend on each, with and without layer normalisation? Forecasts are fitted on these
runs too, so that they know more than one setting.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import explain_triangles, exponent_text, fit_or_none, plot_runs
from unstuck.papers.style import BLUE, ORANGE, note, panels

FIRST_SEED = 600  # of a run, which also draws its settings
RUNS = {"quick": 2, "cpu": 80, "paper": 400}
TERMS = ("d", "T", "lr", "batch", "width", "heads", "layers")
ALSO = ("width",)
NORMS = {False: "without layer normalisation", True: "with layer normalisation"}
COLOURS = {False: BLUE, True: ORANGE}


def drawn(seed: int) -> dict[str, Any]:
    """The settings of one run."""
    rng = np.random.default_rng(seed)
    choices: dict[str, list[Any]] = {
        "task.T": [16, 24, 32, 48, 64],
        "task.d": [8, 16, 24, 32],
        "model.layers": [1, 2, 3],
        "model.heads": [1, 2, 4],
        "model.width": [32, 64, 128],
        "optim.lr": [1e-4, 2e-4, 4e-4],
        "train.batch": [16, 32, 64],
    }
    found = {key: values[int(rng.integers(len(values)))] for key, values in choices.items()}
    return found | {"model.layer_norm": bool(rng.integers(2)), "train.after": 100, "train.max_steps": 8000}


def runs(profile: Profile) -> list[TieredRun]:
    small = {"train.max_steps": 40, "model.width": 32} if profile == "quick" else {}
    seeds = range(FIRST_SEED, FIRST_SEED + RUNS[profile])
    return [run for seed in seeds for run in grid("regression", 1, [seed], drawn(seed) | small)]


@once
def laws(table: pd.DataFrame) -> dict[bool, PowerLaw | None]:
    """With and without layer normalisation."""
    return {norm: fit_or_none(table[table["layer_norm"] == norm], " + ".join(TERMS)) for norm in NORMS}


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.6, height=4.0)
    for ax, (norm, law) in zip(axes, laws(table).items(), strict=True):
        part = table[table["layer_norm"] == norm]
        ax.set(title=f"regression, {NORMS[norm]}", xlabel="plateau by the law of all settings (steps)")
        ax.set(ylabel="plateau (steps to test loss 0.1)", xscale="log", yscale="log")
        if law is None:
            note(ax, "too few runs for a law")
            continue
        predicted = law.predict(part)
        plot_runs(ax, predicted, part, COLOURS[norm], None, alpha=0.8)
        ends = [predicted.min(), predicted.max()]
        ax.plot(ends, ends, "-", color="#444444", lw=1.0, label="equal")
        explain_triangles(ax, part)
        note(ax, f"R² = {law.r2:.3f}, {law.n} runs emerged, {law.censored} did not")
        ax.legend(loc="lower right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = runs_in(table)
    for norm, law in laws(table).items():
        if law is None:
            claims.append(Claim(f"law {NORMS[norm]}", "too few runs yet"))
            continue
        claims += [Claim(f"exponent of {term}, {NORMS[norm]}", exponent_text(law, term)) for term in TERMS]
        claims.append(Claim(f"runs fitted, {NORMS[norm]}", f"{law.n} emerged, {law.censored} censored"))
        claims.append(Claim(f"R², {NORMS[norm]}", law.r2))
    return claims
