"""Figure 2 left: in-context repetition shortens the plateau as 1/B, in the paper's reduction.

Section 2.3. Reduced flow at T = 4096, B = 1 .. 32, d = 16 .. 512. T does not vary here, so T and 1/B share one
exponent. For the toy model's own flow the plateau goes as B^-1/2: see the figure exact-flow.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import fit_power_law
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import legend_outside, note, panels, plateau_axes, shades

from ._grids import POWERS_OF_TWO_D as D
from ._grids import plateau_table

T, B = 4096, [1, 2, 4, 8, 16, 32]
PAPER = {"constant": 1.51, "T/B": 0.99, "d": 0.49, "r2": 0.999}


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", len(B) * len(D), 0.2)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    return plateau_table(progress, T=[T], d=D, B=B)


def draw(table: pd.DataFrame) -> Figure:
    law = fit_power_law(table, "d + T/B")
    picture, (ax,) = panels(width=5.6, height=3.9)
    for b, colour in shades(B).items():
        row = table[table["B"] == b]
        ax.plot(row["d"], row["plateau_steps"], "o", ms=4.5, color=colour, label=f"B = {b}")
        ax.plot(row["d"], law.predict(row), "-", lw=1.2, color=colour)
    plateau_axes(ax, "dimension d", D)
    ax.set_ylim(450, 6e5)
    legend_outside(picture, ax)
    ax.set_title(f"In-context repetition, reduced flow, T = {T}")
    note(
        ax,
        f"ours:  {law.constant:.2f} $(T/B)^{{{law.exponents['T/B']:.3f}}} d^{{{law.exponents['d']:.3f}}}$, "
        f"R² = {law.r2:.4f}\n"
        r"paper: 1.51 $T^{0.99} B^{-0.99} d^{0.49}$, R² = 0.999",
    )
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    law, free = fit_power_law(table, "d + T/B"), fit_power_law(table, "d + B")
    return [
        Claim.number("exponent of T/B", law.exponents["T/B"], PAPER["T/B"], 0.02),
        Claim.number("exponent of d", law.exponents["d"], PAPER["d"], 0.02),
        Claim("R²", law.r2, PAPER["r2"], law.r2 >= 0.998),
        Claim.number(
            "constant", law.constant, PAPER["constant"], 0.05, "1.51 does not come out at T = 4096 (erratum 10)"
        ),
        Claim("exponent of B, at one T", free.exponents["B"], None, None, "the toy model's own flow has -1/2"),
    ]
