"""fig3-large: Figure 3 left at four larger sizes.

The runs of fig3-left without repetition, and one seed each at (T, d) = (128, 64), (256, 32), (256, 64) and (64, 128).
Do the exponents between neighbouring sizes go towards the paper's?
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import (
    fit_or_none,
    law_claims,
    law_text,
    left_runs,
    local_exponents,
    plot_plateaus,
)
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun, grid, in_parts, runs_in
from unstuck.papers.style import legend_outside, note, panels

IN_PARTS = True  # sizes are compared with their neighbours; the claims say how many runs are in
FORMULA, NAMES = "d + T", {"d": "d", "T": "T"}
PAPER = {"d": 1.29, "T": 0.80}
FROM = {"T": 64, "d": 32}  # the sizes that a law of large ones is fitted to
LARGE: dict[Profile, list[tuple[int, int]]] = {  # T, d
    "quick": [(8, 8)],
    "cpu": [(128, 64), (256, 32), (256, 64), (64, 128)],
    "paper": [(512, 64), (512, 128)],
}


def runs(profile: Profile) -> list[TieredRun]:
    large = [run for T, d in LARGE[profile] for run in grid("regression", 2, [0], {"task.T": T, "task.d": d})]
    small = grid("regression", 1, [0], task__T=[8, 16], task__d=[4]) if profile == "quick" else left_runs(profile)
    return [*small, *large]


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return in_parts(runs(profile), store)


def paper_law(T: pd.Series, d: pd.Series) -> pd.Series:
    """The paper's plateau without repetition (Figure 3)."""
    return 0.76 * d**1.29 * T**0.80


def _large(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["T"] >= FROM["T"]) & (table["d"] >= FROM["d"])]


def draw(table: pd.DataFrame) -> Figure:
    law = fit_or_none(_large(table), FORMULA)
    picture, (ax,) = panels(width=5.6, height=4.0)
    plot_plateaus(ax, table, x="d", by="T", law=None, xlabel="dimension d", label="T")
    for i, (T, rows) in enumerate(table.groupby("T")):
        d = pd.Series(sorted(rows["d"].unique()))
        label = "paper's law" if i == 0 else None
        ax.plot(d, paper_law(pd.Series(T, index=d.index), d), ":", lw=0.9, color="#999999", label=label)
    ax.set_ylim(top=ax.get_ylim()[1] * 4)
    legend_outside(picture, ax)
    where = f"T ≥ {FROM['T']}, d ≥ {FROM['d']}"
    note(ax, f"ours, {where}: {law_text(law, NAMES)}\npaper: 0.76 $d^{{1.29}}$ $T^{{0.80}}$, R² = 0.995")
    ax.set_title("Transformer, no repetition")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = runs_in(table)
    claims += [local_exponents(table, "d"), local_exponents(table, "T")]
    large = _large(table)
    if len(set(zip(large["T"], large["d"], strict=True))) > 3:
        where = f", T from {FROM['T']} and d from {FROM['d']} on"
        claims += law_claims(fit_or_none(large, FORMULA), PAPER, where=where)
    emerged = table[table["status"] == "emerged"]
    over = np.log(emerged["plateau_steps"] / paper_law(emerged["T"], emerged["d"]))
    means = np.exp(over.groupby([emerged["T"], emerged["d"]]).mean())
    shown = [f"T = {T}, d = {d}: {x:.2f}" for (T, d), x in means.items() if FROM["T"] <= T and d >= FROM["d"]]
    if shown:
        claims.append(Claim("plateau over the paper's law 0.76 d^1.29 T^0.80", ", ".join(shown), "1", None))
    return claims
