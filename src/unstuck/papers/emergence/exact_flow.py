"""exact-flow: in-context repetition shortens the toy model's own plateau as 1/√B, not 1/B.

Erratum 6, not in the paper. The reduction takes Δa as the parameter, which is exact when the B relevant positions
share one score. In the model of Eq. 2 every position has its own, the gradient is split among them, and the
exponent halves. Flows, closed forms and brute-force gradient descent on all T scores (lr 1) with free and with
shared scores; d = 16.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import fit_power_law
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLUE, ORANGE, note, panels, plateau_axes
from unstuck.theory import Flow, blow_up_time, gradient_descent
from unstuck.theory.setting import Kind

D = 16
SIZES = {256: [1, 2, 4, 8], 4096: [1, 2, 4, 8, 16, 32]}
KINDS: dict[Kind, tuple[str, str, str]] = {  # colour, marker, name
    "reduced": (ORANGE, "s", "one shared score (the reduction)"),
    "exact": (BLUE, "o", "free scores (Eq. 2)"),
}


def plan(profile: Profile) -> list[Job]:
    cells = sum(map(len, SIZES.values()))
    return [Job("flow", 2 * cells, 0.1), Job("gradient descent", 2 * cells, 10, 120_000)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    cells = [(T, B, kind) for T, sizes in SIZES.items() for B in sizes for kind in KINDS]
    rows = []
    for i, (T, B, kind) in enumerate(cells):
        flow = Flow(T, D, B, kind=kind)
        steps = gradient_descent(flow).steps
        rows.append((kind, T, D, B, flow.plateau().time, steps, blow_up_time(flow)))
        progress(i + 1, len(cells))
    return pd.DataFrame(rows, columns=["flow", "T", "d", "B", "plateau_steps", "brute_force", "blow_up"])


def _exponents(table: pd.DataFrame) -> dict[tuple[int, str], float]:
    return {
        (int(T), str(kind)): fit_power_law(part, "B").exponents["B"] for (T, kind), part in table.groupby(["T", "flow"])
    }


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.6, height=3.9)
    exponents = _exponents(table)
    for ax, (T, sizes) in zip(axes, SIZES.items(), strict=True):
        for kind, (colour, marker, name) in KINDS.items():
            part = table[(table["T"] == T) & (table["flow"] == kind)]
            ax.plot(part["B"], part["plateau_steps"], "-", color=colour, label=f"{name}: flow")
            ax.plot(
                part["B"], part["brute_force"], marker, color=colour, mfc="white", ms=6, label="   gradient descent"
            )
            ax.plot(part["B"], part["blow_up"], ":", color=colour, lw=1.2, label="   closed form √(π/2)/μ")
        plateau_axes(ax, "copies B of the relevant token", sizes)
        ax.set_title(f"T = {T}, d = {D}")
        low, high = table.loc[table["T"] == T, "plateau_steps"].agg(["min", "max"])
        ax.set_ylim(low / 9, high * 1.5)
        note(
            ax,
            f"free scores: $B^{{{exponents[T, 'exact']:.3f}}}$\nshared score: $B^{{{exponents[T, 'reduced']:.3f}}}$\n"
            "paper: $B^{-0.99}$",
            at=(0.97, 0.97),
            ha="right",
        )
    axes[0].legend(loc="lower left", fontsize=7.8)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    exponents = _exponents(table)
    off = (table["brute_force"] / table["plateau_steps"] - 1).abs().max()
    return [
        Claim.number("exponent of B, shared score, T = 4096", exponents[4096, "reduced"], -0.99, 0.03),
        Claim.number(
            "exponent of B, free scores, T = 4096",
            exponents[4096, "exact"],
            -0.99,
            0.03,
            "1/B needs a shared parameter; the model of Eq. 2 has none, and gives 1/√B (erratum 6)",
        ),
        Claim(
            "flow against brute force", f"at most {off:.2%} apart", note="gradient descent with lr 1 on all T scores"
        ),
    ]
