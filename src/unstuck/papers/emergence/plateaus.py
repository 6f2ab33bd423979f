"""Plateaus of Transformers on regression against one size, with their power law: Figure 3 and figures beside it.

Section 2.4. The paper's 2-layer, 4-head Transformer and Adam. A row says which runs, what is drawn against what, which
law is fitted, and what the paper says.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import exponent_text, fit_or_none, law_text, plot_plateaus
from unstuck.papers.style import legend_outside, note, panels

from ._regression import (
    PAPER_GRID,
    cell_ratios,
    each_once,
    law_claims,
    left_runs,
    local_exponents,
    middle_runs,
    paper_law,
    ratio_text,
    spread,
)

D_AND_T = {"d": 1.29, "T": 0.80}  # the paper's exponents
FROM = {"T": 64, "d": 32}  # the sizes that a law of large ones is fitted to
LARGE: dict[Profile, list[tuple[int, int]]] = {  # T, d
    "quick": [(8, 8)],
    "cpu": [(128, 64), (256, 32), (256, 64), (64, 128)],
    "paper": [(512, 64), (512, 128)],
}


def _all(table: pd.DataFrame) -> pd.DataFrame:
    return table


@dataclass(frozen=True)
class PlateauFigure:
    """Every run a dot over `x`, coloured by the value of `by`, and the law `formula` as lines."""

    title: str
    runs: Callable[[Profile], list[TieredRun]]
    heading: str  # of the panel, with the sizes of the first run
    formula: str
    noted: Callable[[pd.DataFrame, PowerLaw | None], str]  # in the panel
    claims: Callable[[pd.DataFrame, PowerLaw | None], list[Claim]]
    by: str = "T"
    x: str = "d"
    fitted: Callable[[pd.DataFrame], pd.DataFrame] = _all  # the runs that the law is of
    drawn: Callable[[pd.DataFrame], pd.DataFrame] = _all
    paper_lines: bool = False  # the paper's law as lines, instead of ours
    in_parts: bool = False

    @once
    def law(self, table: pd.DataFrame) -> PowerLaw | None:
        return fit_or_none(self.fitted(table), self.formula)

    def draw(self, table: pd.DataFrame) -> Picture:
        law, part = self.law(table), self.drawn(table)
        picture, (ax,) = panels(width=5.6, height=4.0)
        plot_plateaus(ax, part, self.x, self.by, None if self.paper_lines else law)
        if self.paper_lines:
            _paper_lines(ax, part)
        ax.set_ylim(top=ax.get_ylim()[1] * 4)
        legend_outside(picture, ax)
        note(ax, self.noted(table, law))
        ax.set_title(self.heading.format(T=table["T"].iloc[0], d=table["d"].iloc[0]))
        return picture

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        return self.claims(table, self.law(table))


def _paper_lines(ax: Axes, table: pd.DataFrame) -> None:
    for i, (T, rows) in enumerate(table.groupby("T")):
        d = np.array(sorted(rows["d"].unique()), dtype=float)
        ax.plot(d, paper_law(T, d), ":", lw=0.9, color="#999999", label="paper's law" if i == 0 else None)


def _beside(paper: str, where: str = "") -> Callable[[pd.DataFrame, PowerLaw | None], str]:
    """Our law above the paper's."""
    return lambda table, law: f"ours{where}:{' ' if where else '  '}{law_text(law)}\npaper: {paper}"


# -- Figure 3 left and middle


def _both_runs(profile: Profile) -> list[TieredRun]:
    return each_once([*middle_runs(profile), *left_runs(profile)])


def _unrepeated(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["B"] == 1]


def _left(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    claims = law_claims(law, {"d": 1.29, "T/B": 0.80}, r2=0.995, decides=PAPER_GRID)
    claims += [local_exponents(_unrepeated(table), "d"), local_exponents(_unrepeated(table), "T")]
    if law is not None:
        claims.append(Claim("constant", law.constant, 0.76, None, "for other exponents"))
        claims.append(Claim("spread over seeds", f"{spread(table, ['T', 'd', 'B']):.1%} of the plateau"))
    return claims


def _middle(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    claims = law_claims(law, {"d": 1.29, "B": -0.80}, decides=PAPER_GRID)
    return [*claims, local_exponents(table, "d"), local_exponents(table, "B")]


# -- fig3-large: one seed each at four larger sizes beside the runs of fig3-left without repetition


def _large_runs(profile: Profile) -> list[TieredRun]:
    large = [run for T, d in LARGE[profile] for run in grid("regression", 2, [0], {"task.T": T, "task.d": d})]
    small = grid("regression", 1, [0], task__T=[8, 16], task__d=[4]) if profile == "quick" else left_runs(profile)
    return [*small, *large]


def _large(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["T"] >= FROM["T"]) & (table["d"] >= FROM["d"])]


def _large_claims(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    claims = [*runs_in(table), local_exponents(table, "d"), local_exponents(table, "T")]
    large = _large(table)
    if len(set(zip(large["T"], large["d"], strict=True))) > 3:
        where = f", T from {FROM['T']} and d from {FROM['d']} on"
        claims += law_claims(law, D_AND_T, where=where, decides=PAPER_GRID)
    emerged = large[large["status"] == "emerged"]
    over = np.log(emerged["plateau_steps"] / paper_law(emerged["T"], emerged["d"]))
    means = np.exp(over.groupby([emerged["T"], emerged["d"]]).mean())
    shown = [f"T = {T}, d = {d}: {x:.2f}" for (T, d), x in means.items()]
    if shown:
        claims.append(Claim("plateau over the paper's law 0.76 d^1.29 T^0.80", ", ".join(shown), "1", None))
    return claims


# -- fig3-layernorm: layer normalisation before attention, perceptron and read-out, and the same sizes without it


def _norm_runs(profile: Profile) -> list[TieredRun]:
    T, d, seeds = {
        "quick": ([16, 32], [8, 12], [0]),
        "cpu": ([16, 32, 64], [8, 16, 32], [0, 1]),
        "paper": ([16, 32, 64, 128, 256], [8, 16, 32, 64, 128], [0, 1, 2, 3, 4]),
    }[profile]
    with_norm = grid("regression", 1, seeds, {"model.layer_norm": True}, task__T=T, task__d=d)
    return [*with_norm, *grid("regression", 1, seeds, task__T=T, task__d=d)]


def _normed(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["layer_norm"]]


def _norm_note(table: pd.DataFrame, law: PowerLaw | None) -> str:
    return f"with layer norm: {law_text(law)}\nwithout:  {law_text(fit_or_none(table[~table['layer_norm']], 'd + T'))}"


def _norm_claims(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    # The paper's law is one without layer norm: it stands beside, and can neither agree nor differ.
    claims = [
        replace(claim, agrees=None, note="the paper's is without" if claim.paper is not None else "")
        for claim in law_claims(law, D_AND_T, where=", with layer norm", decides=PAPER_GRID)
    ]
    ratio, left_out = cell_ratios(_normed(table), table[~table["layer_norm"]])
    if len(ratio):
        claims.append(Claim("plateau with layer norm over without", ratio_text(ratio, left_out)))
    return claims


# -- fig-lr-batch: an engineer's first question


def _rate_runs(profile: Profile) -> list[TieredRun]:
    sizes, rates, batches, seeds = {
        "quick": ((16, 8), [1e-4, 3e-4], [8, 32], [0]),
        "cpu": ((32, 16), [3e-5, 1e-4, 3e-4, 1e-3], [8, 32, 128], [0, 1]),
        "paper": ((32, 16), [3e-5, 1e-4, 3e-4, 1e-3], [8, 32, 128], [0, 1, 2, 3, 4]),
    }[profile]
    fixed = {"task.T": sizes[0], "task.d": sizes[1], "train.max_steps": 20_000}
    return grid("regression", 2, seeds, fixed, optim__lr=rates, train__batch=batches)


def _rate_claims(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    terms = law.exponents if law is not None else ()
    claims = [Claim(f"exponent of {term}", exponent_text(law, term)) for term in terms if law]
    lost = table[table["status"] != "emerged"]
    return [*claims, Claim("runs that did not emerge", f"{len(lost)} of {len(table)}")]


FIGURES: dict[str, PlateauFigure] = {
    "fig3-left": PlateauFigure(
        "Figure 3 left: a Transformer's plateau grows with d and T as a power law",
        _both_runs,  # the law is fitted to those of both panels together (D.2)
        "Transformer, no repetition",
        "d + T/B",
        _beside("0.76 $d^{1.29}$ $(T/B)^{0.80}$, R² = 0.995"),
        _left,
        drawn=_unrepeated,
    ),
    "fig3-middle": PlateauFigure(
        "Figure 3 middle: in-context repetition shortens a Transformer's plateau",
        middle_runs,
        "Transformer, in-context repetition, T = {T}",
        "d + B",  # the exponent of B, free of that of T
        _beside("$d^{1.29}$ $B^{-0.80}$ (with Figure 3 left: R² = 0.995)"),
        _middle,
        by="B",
    ),
    "fig3-large": PlateauFigure(
        "fig3-large: do the exponents of Figure 3 left reach the paper's at four larger sizes?",
        _large_runs,
        "Transformer, no repetition",
        "d + T",
        _beside("0.76 $d^{1.29}$ $T^{0.80}$, R² = 0.995", f", T ≥ {FROM['T']}, d ≥ {FROM['d']}"),
        _large_claims,
        fitted=_large,
        paper_lines=True,
        in_parts=True,  # sizes are compared with their neighbours; the claims say how many runs are in
    ),
    "fig3-layernorm": PlateauFigure(
        "fig3-layernorm: the law of Figure 3 left with layer normalisation, which the paper leaves out",
        _norm_runs,
        "Transformer with layer normalisation",
        "d + T",
        _norm_note,
        _norm_claims,
        fitted=_normed,
        drawn=_normed,
    ),
    "fig-lr-batch": PlateauFigure(
        "fig-lr-batch: how the plateau depends on learning rate and batch size",
        _rate_runs,
        "Transformer, T = {T}, d = {d}",
        "lr + batch",
        lambda table, law: law_text(law, {"lr": r"\mathrm{lr}", "batch": r"\mathrm{batch}"}),
        _rate_claims,
        by="batch",
        x="lr",
    ),
}
