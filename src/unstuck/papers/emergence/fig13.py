"""Figure 13: plateau against the number of layers and of heads.

B.3. 1 to 3 layers and 1 to 8 heads. The paper's caption says that more heads make the network wider, not which width:
here the residual stream stays at 256 and every head has queries, keys and values of 64, so that attention gets wider;
in fig13-split heads share a width of 256, and in fig13-width the residual stream is 64 a head.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import fit_or_none, law_claims, law_text, plot_plateaus
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import note, panels

FORMULA = "d + T + layers + heads"
NAMES = {"d": "d", "T": "T", "layers": "L", "heads": "H"}
PAPER = {"d": 1.27, "T": 0.70, "layers": 0.06, "heads": 0.16}


def runs(profile: Profile) -> list[TieredRun]:
    T, d, layers, heads, seeds = {
        "quick": ([12, 16], [8, 12], [1, 2], [1, 4], [0]),
        "cpu": ([16, 32], [8, 16], [1, 2, 3], [1, 2, 4, 8], [0, 1]),
        "paper": ([16, 32, 64, 128, 256], [16, 32, 64, 128], [1, 2, 4], [1, 2, 4, 8], [0, 1, 2, 3, 4]),
    }[profile]
    return grid("regression", 2, seeds, task__T=T, task__d=d, model__layers=layers, model__heads=heads)


def draw(table: pd.DataFrame) -> Figure:
    return draw_heads(table, FORMULA)


def draw_heads(table: pd.DataFrame, formula: str) -> Figure:
    """Plateaus over heads and over layers, at the largest T and d."""
    law = fit_or_none(table, formula)
    picture, axes = panels(2, width=4.4, height=3.9)
    sizes = table[(table["d"] == table["d"].max()) & (table["T"] == table["T"].max())]
    for ax, x, by in ((axes[0], "heads", "layers"), (axes[1], "layers", "heads")):
        plot_plateaus(ax, sizes, x=x, by=by, law=law, xlabel=x, label=by)
        ax.set_ylim(top=ax.get_ylim()[1] * 2)
    axes[0].legend(loc="upper right", fontsize=7.5)
    axes[1].legend(loc="upper right", fontsize=7.5, ncols=2)
    axes[0].set_title(f"T = {sizes['T'].iloc[0]}, d = {sizes['d'].iloc[0]}")
    note(
        axes[0], f"ours:  {law_text(law, NAMES)}\npaper: 1.03 $d^{{1.27}} T^{{0.70}} L^{{0.06}} H^{{0.16}}$, R² = 0.995"
    )
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    return law_claims(fit_or_none(table, FORMULA), PAPER, r2=0.995)
