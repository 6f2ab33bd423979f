"""Figures 14 and 15: the law d^x T^y of variants of the task and of the optimiser, a panel each, one layer of one head.

B.3. The text does not say the architecture of Figure 14; its first law is that of Figure 15 for one layer and one head
with Adam, so that is used for both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import fit_or_none, law_text, plot_plateaus
from unstuck.papers.style import note, panels

from ._regression import PAPER_D, PAPER_T, cell_ratios, law_claims, of_paper_sizes, ratio_text

ONE_HEAD = {"model.layers": 1, "model.heads": 1}
HARD = {"T": 256, "d": 128}  # the largest size of the paper
GRID_LEFT = "the paper's grid with five seeds would tell"
Laws = dict[str, PowerLaw | None]


@dataclass(frozen=True)
class Variant:
    """The runs with some settings, and the paper's law of them: constant d^x T^y."""

    name: str  # in claims
    heading: str  # of its panel
    settings: Mapping[str, Any]  # by column of the table
    constant: float
    exponents: Mapping[str, float]
    r2: float

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        return table[(table[list(self.settings)] == pd.Series(self.settings)).all(axis=1)]


@dataclass(frozen=True)
class VariantFigure:
    """Plateaus against d for several T, a panel a variant, our law beside the paper's."""

    title: str
    runs: Callable[[Profile], list[TieredRun]]
    variants: tuple[Variant, ...]
    width: float  # of a panel
    limits: Callable[[pd.DataFrame], tuple[float, float]]
    claims: Callable[[pd.DataFrame, Laws], list[Claim]]
    in_parts: bool = True  # every run is a point of its law; the claims say how many are in

    @once
    def laws(self, table: pd.DataFrame) -> Laws:
        return {v.name: fit_or_none(of_paper_sizes(v.of(table)), "d + T") for v in self.variants}

    def draw(self, table: pd.DataFrame) -> Picture:
        picture, axes = panels(len(self.variants), width=self.width, height=3.8)
        for ax, variant in zip(axes, self.variants, strict=True):
            ax.set_title(variant.heading)
            if len(part := variant.of(table)):
                _panel(ax, part, variant, self.laws(table)[variant.name])
                ax.set_ylim(*self.limits(table))
        return picture

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        claims, laws = runs_in(table), self.laws(table)
        for v in self.variants:
            where = f", {v.name}"
            claims += law_claims(laws[v.name], dict(v.exponents), where=where, r2=v.r2, decides=GRID_LEFT)
        return [*claims, *self.claims(table, laws)]


def _panel(ax: Axes, part: pd.DataFrame, variant: Variant, law: PowerLaw | None) -> None:
    plot_plateaus(ax, part, "d", "T", law)
    ax.legend(loc="lower right", fontsize=7.5)
    theirs = f"{variant.constant:.2f} $d^{{{variant.exponents['d']:.2f}}} T^{{{variant.exponents['T']:.2f}}}$"
    note(ax, f"ours:  {law_text(law)}\npaper: {theirs}")


# -- Figure 14: relevance feature and random position; feature and fixed position; fixed position alone


def _position(name: str, feature: bool, position: str, constant: float, d: float, T: float, r2: float) -> Variant:
    return Variant(name, name, {"feature": feature, "position": position}, constant, {"d": d, "T": T}, r2)


RANDOM = _position("feature, random position", True, "random", 1.43, 1.31, 0.58, 0.998)
FLAGGED = _position("feature, fixed position", True, "fixed", 4.20, 1.22, 0.29, 0.996)
FIXED = _position("no feature, fixed position", False, "fixed", 4.61, 1.21, 0.30, 0.999)


def _position_runs(profile: Profile) -> list[TieredRun]:
    """The paper's grid in the `cpu` profile too, and the smaller d = 8 beside it."""
    out = []
    for variant in (RANDOM, FLAGGED, FIXED):
        fixed = ONE_HEAD | {f"task.{key}": value for key, value in variant.settings.items()}
        if profile == "quick":
            out += grid("regression", 2, [0], fixed, task__T=[16, 32], task__d=[8, 16])
            continue
        out += grid("regression", 2, range(5), fixed, task__T=PAPER_T, task__d=PAPER_D[:4])
        if profile == "cpu":
            out += grid("regression", 2, [0, 1], fixed, task__T=[16, 32, 64], task__d=[8])
    return out


def _position_claims(table: pd.DataFrame, laws: Laws) -> list[Claim]:
    claims = []
    for variant, name in ((FLAGGED, "flagged"), (FIXED, "not flagged")):
        ratio, left_out = cell_ratios(variant.of(table), RANDOM.of(table))
        if len(ratio):
            faster = True if ratio.max() < 1 else False if ratio.min() > 1 else None
            what = f"plateau with a fixed position, {name}, over a random one that is flagged"
            note = {True: "", False: GRID_LEFT, None: "faster at some sizes only"}[faster]
            claims.append(Claim(what, ratio_text(ratio, left_out), "faster with positional information", faster, note))
    ratio, left_out = cell_ratios(FIXED.of(table), FLAGGED.of(table))
    a, b = laws[FLAGGED.name], laws[FIXED.name]
    if a is not None and b is not None and len(ratio):
        ends = {t: list(zip(a.intervals[t], b.intervals[t], strict=True)) for t in ("d", "T")}  # the lows, the highs
        apart = [t for t, (lows, highs) in ends.items() if max(lows) > min(highs)]
        note = f"intervals of {', '.join(apart)} do not overlap; {GRID_LEFT}" if apart else ""
        what = "plateau with a fixed position, not flagged over flagged"
        claims.append(Claim(what, ratio_text(ratio, left_out), "almost the same laws", not apart, note))
    return claims


# -- Figure 15: SGD against Adam

SGD = Variant("sgd", "SGD, learning rate 0.005", {"optim": "sgd"}, 6.42, {"d": 1.44, "T": 1.07}, 0.997)
ADAM = Variant("adam", "Adam, learning rate 0.0001", {"optim": "adam"}, 1.45, {"d": 1.31, "T": 0.57}, 0.998)
RATES = {"sgd": 5e-3, "adam": 1e-4}


def _optimiser_runs(profile: Profile) -> list[TieredRun]:
    """The paper's grid; in the `cpu` profile with SGD as far as T and d = 64, and the smaller d = 8 beside it."""
    fixed = {name: {**ONE_HEAD, "optim.name": name, "optim.lr": lr} for name, lr in RATES.items()}
    if profile == "quick":
        sizes = {"task__T": [8, 16], "task__d": [8, 12]}
        return [run for one in fixed.values() for run in grid("regression", 2, [0], one, **sizes)]
    adam = grid("regression", 2, range(5), fixed["adam"], task__T=PAPER_T, task__d=PAPER_D[:4])
    long = {**fixed["sgd"], "train.max_steps": 10_000_000}  # four times the most by the paper's law
    if profile == "paper":
        return [*adam, *grid("regression", 2, range(5), long, task__T=PAPER_T, task__d=PAPER_D[:4])]
    sgd = grid("regression", 2, [0], long, task__T=PAPER_T[:3], task__d=PAPER_D[:3])
    sgd += grid("regression", 2, [1], fixed["sgd"], task__T=[16, 32], task__d=[16, 32])
    small = [run for one in fixed.values() for run in grid("regression", 2, [0, 1], one, task__T=[16, 32], task__d=[8])]
    return [*adam, *sgd, *small]


def _optimiser_claims(table: pd.DataFrame, laws: Laws) -> list[Claim]:
    claims = []
    ratio, left_out = cell_ratios(SGD.of(table), ADAM.of(table))
    if len(ratio):
        text, hard = ratio_text(ratio, left_out, digits=0), "almost two orders of magnitude on hard tasks"
        claims.append(Claim("SGD over Adam", text, hard, None, "the paper's hard tasks go on to T = 256, d = 128"))
    sgd, adam = laws["sgd"], laws["adam"]
    if sgd is not None and adam is not None:
        theirs = SGD.constant / ADAM.constant
        for term, size in HARD.items():
            theirs *= size ** (SGD.exponents[term] - ADAM.exponents[term])
        what = f"SGD over Adam by the laws at T = {HARD['T']}, d = {HARD['d']}"
        ours = float(sgd.predict(HARD) / adam.predict(HARD))
        claims.append(Claim(what, f"{ours:.0f} times", f"{theirs:.0f} times", None, "ours is extrapolated"))
    return claims


FIGURES: dict[str, VariantFigure] = {
    "fig14": VariantFigure(
        "Figure 14: emergence is faster when the position tells which token matters",
        _position_runs,
        (RANDOM, FLAGGED, FIXED),
        width=3.9,
        limits=lambda table: (20, 2e4),
        claims=_position_claims,
    ),
    "fig15": VariantFigure(
        "Figure 15: Adam leaves the plateau much sooner than SGD",
        _optimiser_runs,
        (SGD, ADAM),
        width=4.3,
        limits=lambda table: (50, max(3e5, 4 * table["plateau_steps"].max())),
        claims=_optimiser_claims,
    ),
}
