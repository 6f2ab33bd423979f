"""fit-grids: a power law's exponents depend on the grid it is fitted to.

Not in the paper. The laws of Figures 1c and 2 are slightly curved in logarithms, so their exponents and constants
move with the sizes one happens to choose. Every row is a least-squares fit as in D.2 to flows simulated on that
grid.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import fit_power_law
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLUE, ORANGE, panels
from unstuck.theory.setting import Kind

from .flow_laws import EXACT, TIED, plateau_table
from .flow_laws import D as _D
from .flow_laws import T as _T


class Grid(NamedTuple):
    figure: str
    name: str
    formula: str
    T: Sequence[int]
    d: Sequence[int]
    B: Sequence[int] = (1,)
    p: Sequence[float] = (0.0,)
    kind: Kind = "reduced"


_B, _P = [1, 2, 4, 8, 16, 32], [0.0, 0.05, 0.1, 0.2, 0.3]
GRIDS = [
    Grid("1c", "T 64..4096, d 16..512", "T + d", _T, _D),
    Grid("1c", "T 64..512, d 16..512", "T + d", _T[:4], _D),
    Grid("1c", "T 512..4096, d 16..512", "T + d", _T[3:], _D),
    Grid("1c", "T 4096..65536, d 16..512", "T + d", [2**i for i in range(12, 17)], _D),
    Grid("1c", "T 64..4096, d 4..64", "T + d", _T, [4, 8, 16, 32, 64]),
    Grid("2 left", "T 4096, B 1..32, reduced flow", "T/B + d", [4096], _D, _B),
    Grid("2 left", "T 1024, B 1..32, reduced flow", "T/B + d", [1024], _D, _B),
    Grid("2 left", "T 64..4096, B 1..32, reduced flow", "T/B + d", _T, _D, _B),
    Grid("2 left", "T 4096, B 1..32, exact flow", "B + d", [4096], _D, _B, kind="exact"),
    Grid("2 left", "T 65536, B 1..32, exact flow", "B + d", [65536], _D, _B, kind="exact"),
    *(
        Grid("2 right", f"p {name}, {factor} factor", formula, [4096], _D, p=p)
        for name, p in [("0..0.3", _P), ("0..0.5", [*_P, 0.5]), ("0..0.9", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])]
        for factor, formula in [("paper's", TIED), ("exact", EXACT)]
    ),
]


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", sum(len(g.T) * len(g.d) * len(g.B) * len(g.p) for g in GRIDS), 2.0)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    rows = []
    for i, grid in enumerate(GRIDS):
        table = plateau_table(lambda done, of: None, T=grid.T, d=grid.d, B=grid.B, p=grid.p, kind=grid.kind)
        law = fit_power_law(table, grid.formula)
        first, *rest = law.exponents
        low, high = law.intervals[first]
        second = law.exponents[rest[0]] if rest else float("nan")
        fitted = (law.exponents[first], low, high, second, law.constant, law.r2, law.n)
        rows.append((grid.figure, grid.name, first, *fitted))
        progress(i + 1, len(GRIDS))
    columns = ["figure", "grid", "term", "exponent", "low", "high", "exponent_d", "constant", "r2", "n"]
    return pd.DataFrame(rows, columns=columns)


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=7.6, height=4.8)
    y = range(len(table))[::-1]
    size = table["exponent"].abs()
    spread = (table["high"] - table["low"]) / 2
    ax.errorbar(size, list(y), xerr=spread, fmt="o", color=BLUE, ms=5, capsize=2)
    ax.set_yticks(list(y), [f"Fig. {f}: {g}" for f, g in zip(table["figure"], table["grid"], strict=True)])
    paper = {"1c": 1.0, "2 left": 0.99, "2 right": 1.02}
    for yi, (figure, grid) in zip(y, zip(table["figure"], table["grid"], strict=True), strict=True):
        if "exact flow" not in grid:
            ax.plot(paper[figure], yi, "|", color=ORANGE, ms=13, mew=2.2)
    ax.plot([], [], "|", color=ORANGE, ms=11, mew=2.2, label="paper")
    ax.plot([], [], "o", color=BLUE, ms=5, label="ours, 95% interval")
    ax.axvline(1, color="#CCCCCC", lw=0.8)
    ax.axvline(0.5, color="#CCCCCC", lw=0.8)
    ax.set(xlabel="size of the exponent (1c: T; 2 left: T/B or B; 2 right: tied)", xlim=(0.42, 1.1))
    ax.legend(loc="upper left", bbox_to_anchor=(0.12, 0.97))
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    def moves(rows: pd.DataFrame) -> str:
        low, high = rows.loc[rows["exponent"].idxmin()], rows.loc[rows["exponent"].idxmax()]
        return f"{low['exponent']:.2f} ({low['grid']}) to {high['exponent']:.2f} ({high['grid']})"

    exact = table["grid"].str.contains("exact flow")
    parts = {
        "Figure 1c, exponent of T over grids": table["figure"] == "1c",
        "Figure 2 left, exponent of T/B over grids": (table["figure"] == "2 left") & ~exact,
        "Figure 2 left, exponent of B, exact flow": exact,
        "Figure 2 right, tied exponent over grids": table["figure"] == "2 right",
    }
    return [Claim(quantity, moves(table[rows])) for quantity, rows in parts.items()]
