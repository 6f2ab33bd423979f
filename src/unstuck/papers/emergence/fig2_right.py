"""Figure 2 right: cross-sample repetition shortens the plateau, also on data without it.

Section 2.3. Three-variable flow at T = 4096, p = 0 .. 0.3, d = 16 .. 512, test loss at p = 0; fitted with one
exponent for sqrt(d) T over the paper's factor sqrt(p² d + (1-p)²), and over the exact one sqrt(1 + p² (d-1))
(erratum 9).
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import fit_power_law
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import legend_outside, note, panels, plateau_axes, shades

from ._grids import POWERS_OF_TWO_D as D
from ._grids import plateau_table

T, P = 4096, [0.0, 0.05, 0.1, 0.2, 0.3]
TIED = "sqrt(d)*T / sqrt(p**2*d + (1-p)**2)"  # the paper's
EXACT = "sqrt(d)*T / sqrt(1 + p**2*(d-1))"
PAPER = {"constant": 2.15, "exponent": 1.02, "r2": 0.992}


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", len(P) * len(D), 0.3)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    return plateau_table(progress, T=[T], d=D, p=P)


def draw(table: pd.DataFrame) -> Figure:
    tied, exact = fit_power_law(table, TIED), fit_power_law(table, EXACT)
    picture, (ax,) = panels(width=6.0, height=4.1)
    for p, colour in shades(P).items():
        row = table[table["p"] == p]
        ax.plot(row["d"], row["plateau_steps"], "o", ms=4.5, color=colour, label=f"p = {p:g}")
        ax.plot(row["d"], exact.predict(row), "-", lw=1.2, color=colour)
        ax.plot(row["d"], tied.predict(row), ":", lw=1.2, color=colour)
    ax.plot([], [], "-", color="#444444", lw=1.2, label="exact factor")
    ax.plot([], [], ":", color="#444444", lw=1.2, label="paper's factor")
    plateau_axes(ax, "dimension d", D)
    ax.set_ylim(1e4, 6e5)
    legend_outside(picture, ax)
    ax.set_title(f"Cross-sample repetition, T = {T}, test data without it")
    note(
        ax,
        r"paper: 2.15 $(\sqrt{d}\,T/\sqrt{p^2 d+(1-p)^2})^{1.02}$, R² = 0.992"
        f"\nours, same form: {tied.constant:.2f} $(\\cdot)^{{{tied.exponents[TIED]:.3f}}}$, R² = {tied.r2:.4f}"
        f"\nours, $\\sqrt{{1+p^2(d-1)}}$: {exact.constant:.2f} $(\\cdot)^{{{exact.exponents[EXACT]:.3f}}}$, "
        f"R² = {exact.r2:.4f}",
    )
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    tied, exact = fit_power_law(table, TIED), fit_power_law(table, EXACT)
    why = "about twice what Eq. 17-21 give (erratum 10); at p = 0 it contradicts Figure 2 left"
    return [
        Claim.number("exponent, paper's factor", tied.exponents[TIED], PAPER["exponent"], 0.03),
        Claim("R², paper's factor", tied.r2, PAPER["r2"], tied.r2 >= 0.99),
        Claim.number("constant, paper's factor", tied.constant, PAPER["constant"], 0.1, why),
        Claim("exponent, exact factor", exact.exponents[EXACT], None, None, "sqrt(1 + p² (d-1)), erratum 9"),
        Claim("R², exact factor", exact.r2, None, None),
    ]
