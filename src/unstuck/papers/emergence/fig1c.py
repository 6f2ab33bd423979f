"""Figure 1c: the plateau grows as T and the square root of d.

Section 2.2. Plateau lengths of the reduced flow on T = 64 .. 4096, d = 16 .. 512 with their power law, and beside
them Eq. 6 (the linearised escape time) and the blow-up time sqrt(π/2) sqrt(d) T (erratum 2).
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import fit_power_law
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import PAPER_GREY, RED, legend_outside, note, panels, plateau_axes, shades
from unstuck.theory import blow_up_time, escape_time_eq6, plateau_estimate

from ._grids import POWERS_OF_TWO_D as D
from ._grids import plateau_table, settings

T = [64, 128, 256, 512, 1024, 2048, 4096]
PAPER = {"T": 1.0, "d": 0.5, "r2": 0.999}


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", len(T) * len(D), 0.2)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    table = plateau_table(progress, T=T, d=D)
    flows = settings(table)
    return table.assign(
        eq6=[escape_time_eq6(f) for f in flows],
        blow_up=[blow_up_time(f) for f in flows],
        estimate=[plateau_estimate(f) for f in flows],
    )


def draw(table: pd.DataFrame) -> Figure:
    law = fit_power_law(table, "T + d")
    picture, (ax,) = panels(width=6.0, height=4.0)
    for d, colour in shades(D).items():
        row = table[table["d"] == d]
        ax.plot(row["T"], row["plateau_steps"], "o", ms=4.5, color=colour, label=f"d = {d}")
        ax.plot(row["T"], law.predict(row), "-", lw=1.2, color=colour)
        if d in (D[0], D[-1]):
            ax.plot(
                row["T"], row["eq6"], ":", lw=1.2, color=PAPER_GREY, label="Eq. 6, d = 16, 512" if d == 512 else None
            )
            ax.plot(row["T"], row["blow_up"], "--", lw=1.2, color=RED, label="√(π/2) √d T" if d == 512 else None)
    plateau_axes(ax, "sequence length T", T)
    ax.set_ylim(200, 4e6)
    legend_outside(picture, ax)
    ax.set_title("Reduced flow, no repetition")
    note(
        ax,
        f"ours:  {law.constant:.2f} $T^{{{law.exponents['T']:.3f}}} d^{{{law.exponents['d']:.3f}}}$, "
        f"R² = {law.r2:.4f}\n"
        "paper: exponents ≈ 1 and ≈ 0.5, R² = 0.999",
    )
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    law = fit_power_law(table, "T + d")
    eq6 = fit_power_law(table.assign(plateau_steps=table["eq6"]), "T + d")
    large = table[table["T"] >= 1024]
    ratio = large["blow_up"] / large["plateau_steps"]
    three = large["estimate"] / large["plateau_steps"]
    over = table["eq6"] / table["plateau_steps"]
    return [
        Claim.number("exponent of T", law.exponents["T"], PAPER["T"], 0.04),
        Claim.number("exponent of d", law.exponents["d"], PAPER["d"], 0.02),
        Claim("R²", law.r2, PAPER["r2"], law.r2 >= 0.998),
        Claim(
            "scaling of Eq. 6",
            f"T^{eq6.exponents['T']:.2f} d^{eq6.exponents['d']:.2f}, "
            f"and {over.min():.1f} to {over.max():.1f} times the plateau",
            "closely matches the simulated scaling",
            all(abs(eq6.exponents[x] - law.exponents[x]) <= 0.04 for x in ("T", "d")),
            "agreeing would be both exponents within 0.04 of the simulated ones; the linearisation describes how the "
            "plateau is left, not when it ends (erratum 2)",
        ),
        Claim(
            "√(π/2) √d T over the plateau, T ≥ 1024",
            f"{ratio.min():.3f} to {ratio.max():.3f}",
            None,
            None,
            f"with drag and finish (plateau_estimate) {three.min():.3f} to {three.max():.3f}",
        ),
    ]
