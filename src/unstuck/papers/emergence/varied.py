"""Plateaus with settings of the task, the model and of training drawn at random, for regression, recall and MQAR.

The laws of Figures 3 and 4 hold one architecture, learning rate and batch. Here each run draws its own, with its task's
sizes, from its seed: how does the plateau depend on each, with and without layer normalisation? Forecasts are fitted on
these runs too, so that they know more than one setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import explain_triangles, exponent_text, fit_or_none, plot_runs
from unstuck.papers.style import BLUE, ORANGE, note, panels

FIRST_SEED = 600  # of a run, which also draws its settings
ALSO = ("width",)
NORMS = {False: "without layer normalisation", True: "with layer normalisation"}
COLOURS = {False: BLUE, True: ORANGE}
SMALL = {"train.max_steps": 40, "model.width": 32}  # a quick look

Choices = Mapping[str, list[Any]]


@dataclass(frozen=True)
class Varied:
    """Runs of one preset whose settings are drawn from `choices`, and the power law of the plateau in `terms`."""

    title: str
    preset: str
    event: str  # what ends the plateau
    choices: Choices
    terms: tuple[str, ...]
    fixed: Mapping[str, Any]
    number: Mapping[Profile, int]  # of runs

    def drawn(self, seed: int) -> dict[str, Any]:
        """The settings of one run."""
        rng = np.random.default_rng(seed)
        found = {key: values[int(rng.integers(len(values)))] for key, values in self.choices.items()}
        return {**found, "model.layer_norm": bool(rng.integers(2)), **self.fixed}

    def runs(self, profile: Profile) -> list[TieredRun]:
        small = SMALL if profile == "quick" else {}
        seeds = range(FIRST_SEED, FIRST_SEED + self.number[profile])
        return [run for seed in seeds for run in grid(self.preset, 1, [seed], self.drawn(seed) | small)]

    @once
    def laws(self, table: pd.DataFrame) -> dict[bool, PowerLaw | None]:
        """With and without layer normalisation."""
        return {norm: fit_or_none(table[table["layer_norm"] == norm], " + ".join(self.terms)) for norm in NORMS}

    def draw(self, table: pd.DataFrame) -> Picture:
        picture, axes = panels(2, width=4.6, height=4.0)
        for ax, (norm, law) in zip(axes, self.laws(table).items(), strict=True):
            part = table[table["layer_norm"] == norm]
            ax.set(title=f"{self.preset}, {NORMS[norm]}", xlabel="plateau by the law of all settings (steps)")
            ax.set(ylabel=f"plateau (steps to {self.event})", xscale="log", yscale="log")
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

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        claims = runs_in(table)
        for norm, law in self.laws(table).items():
            if law is None:
                claims.append(Claim(f"law {NORMS[norm]}", "too few runs yet"))
                continue
            claims += [Claim(f"exponent of {term}, {NORMS[norm]}", exponent_text(law, term)) for term in self.terms]
            claims.append(Claim(f"runs fitted, {NORMS[norm]}", f"{law.n} emerged, {law.censored} censored"))
            claims.append(Claim(f"R², {NORMS[norm]}", law.r2))
        return claims


FIGURES: dict[str, Varied] = {
    "varied-settings": Varied(
        "varied-settings: plateaus of regression with settings of the model and of training drawn at random",
        preset="regression",
        event="test loss 0.1",
        choices={
            "task.T": [16, 24, 32, 48, 64],
            "task.d": [8, 16, 24, 32],
            "model.layers": [1, 2, 3],
            "model.heads": [1, 2, 4],
            "model.width": [32, 64, 128],
            "optim.lr": [1e-4, 2e-4, 4e-4],
            "train.batch": [16, 32, 64],
        },
        terms=("d", "T", "lr", "batch", "width", "heads", "layers"),
        fixed={"train.after": 100, "train.max_steps": 8000},
        number={"quick": 2, "cpu": 80, "paper": 400},
    ),
    "varied-recall": Varied(
        "varied-recall: plateaus of recall with settings of the model and of training drawn at random",
        preset="recall",
        event="accuracy 0.5",
        choices={
            "task.tokens": [16, 24, 32],
            "task.pairs": [3, 4, 6],
            "model.layers": [2, 3, 4],
            "model.heads": [1, 2, 4],
            "model.width": [64, 128],
            "optim.lr": [2e-4, 4e-4, 8e-4],
            "train.batch": [32, 64],
        },
        terms=("tokens", "pairs", "lr", "batch", "width", "heads", "layers"),
        fixed={"train.thresholds": [0.5], "train.after": 100, "train.max_steps": 6000},
        number={"quick": 2, "cpu": 40, "paper": 400},
    ),
    "varied-mqar": Varied(
        "varied-mqar: plateaus of multi-query recall with settings of the model and of training drawn at random",
        preset="mqar",
        event="accuracy 0.9",
        choices={
            "task.tokens": [12, 16, 24, 32],
            "task.pairs": [2, 3, 4, 5],
            "task.T": [20, 24, 32],
            "model.layers": [2, 3],
            "model.heads": [1, 2, 4],
            "model.width": [32, 64, 128],
            "optim.lr": [5e-4, 1e-3, 2e-3],
            "train.batch": [32, 64],
        },
        terms=("tokens", "pairs", "T", "lr", "batch", "width", "heads", "layers"),
        fixed={"train.after": 100, "train.max_steps": 5000},
        number={"quick": 2, "cpu": 40, "paper": 400},
    ),
}
