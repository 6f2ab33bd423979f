"""fig13-width: Figure 13 with a residual stream that grows with the heads.

The caption of the paper's Figure 13 says that more heads make the network wider, not which width. In fig13 attention
gets wider and the residual stream stays at 256; in fig13-split heads share a width of 256. Here the residual stream is
64 a head. The three readings share the runs with four heads. Which one's exponent of the heads is nearest to the
paper's 0.16?
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import PowerLaw
from unstuck.papers.emergence import fig13, fig13_split
from unstuck.papers.emergence._regression import fit_or_none, law_claims, law_text, plot_plateaus
from unstuck.papers.emergence.fig13 import FORMULA, NAMES, PAPER
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun, finished, grid
from unstuck.papers.style import BLACK, PAPER_GREY, note, panels

WIDTH = 64  # of the residual stream, a head
LAYERS = [1, 2]  # that all readings have
OWN, WIDER, SHARED = "residual stream of 64 a head", "heads of 64 beside a stream of 256", "heads that share 256"


def runs(profile: Profile) -> list[TieredRun]:
    T, d, layers, heads, seeds = {
        "quick": ([8, 12], [4], LAYERS, [1, 4], [0]),
        "cpu": ([16, 32], [8, 16], LAYERS, [1, 2, 4, 8], [0, 1]),
        "paper": ([16, 32, 64, 128, 256], [16, 32, 64, 128], [1, 2, 4], [1, 2, 4, 8], [0, 1, 2, 3, 4]),
    }[profile]
    sizes = {"task__T": T, "task__d": d, "model__layers": layers}
    widths = [{"model.heads": n, "model.width": WIDTH * n} for n in heads]
    return [run for fixed in widths for run in grid("regression", 1, seeds, fixed, **sizes)]


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    """The runs of this reading and, as far as the store has them, those of the two others."""
    own = finished(runs(profile), store)
    if own.empty:
        return own
    others = {WIDER: fig13.runs(profile), SHARED: fig13_split.runs(profile)}
    parts = [own.assign(reading=OWN), *(finished(mine, store).assign(reading=name) for name, mine in others.items())]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def _laws(table: pd.DataFrame) -> dict[str, PowerLaw]:
    """The law of each reading, over the layers that all have."""
    same = table[table["layers"].isin(LAYERS)]
    laws = {str(name): fit_or_none(part, FORMULA) for name, part in same.groupby("reading", sort=False)}
    return {name: law for name, law in laws.items() if law is not None}


def draw(table: pd.DataFrame) -> Figure:
    own = table[table["reading"] == OWN]
    laws = _laws(table)
    picture, (left, right) = panels(2, width=4.6, height=3.9)
    sizes = own[(own["d"] == own["d"].max()) & (own["T"] == own["T"].max())]
    plot_plateaus(left, sizes, x="heads", by="layers", law=laws.get(OWN), xlabel="heads", label="layers")
    left.set_ylim(top=left.get_ylim()[1] * 2)
    left.legend(loc="upper right", fontsize=7.5)
    left.set_title(f"T = {sizes['T'].iloc[0]}, d = {sizes['d'].iloc[0]}, width 64 a head")
    theirs = "1.03 $d^{1.27} T^{0.70} L^{0.06} H^{0.16}$, R² = 0.995"
    note(left, f"ours:  {law_text(laws.get(OWN), NAMES)}\npaper: {theirs}")
    for place, (name, law) in enumerate(reversed(laws.items())):
        low, high = law.intervals["heads"]
        right.plot([low, high], [place, place], color=PAPER_GREY, lw=1.4)
        right.plot(law.exponents["heads"], place, "o", ms=6, color=BLACK)
        right.text(low, place + 0.15, name, fontsize=8.5)
    right.axvline(PAPER["heads"], color=PAPER_GREY, lw=1, ls=":")
    right.text(PAPER["heads"], -0.55, " paper", color=PAPER_GREY, fontsize=8.5)
    right.set(xlabel="exponent of the heads (95% interval)", yticks=[], ylim=(-0.7, len(laws) - 0.3))
    right.margins(x=0.35)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    laws = _laws(table)
    claims = law_claims(laws.get(OWN), PAPER, r2=0.995)
    if len(laws) < 3:
        return [*claims, Claim("exponent of heads by reading", "not all readings are there yet", "0.16", None)]
    shown = []
    for name, law in laws.items():
        low, high = law.intervals["heads"]
        shown.append(f"{name}: {law.exponents['heads']:.2f} ({low:.2f} to {high:.2f})")
    near = min(laws, key=lambda name: abs(laws[name].exponents["heads"] - PAPER["heads"]))
    bounds = {name: law.intervals["heads"] for name, law in laws.items()}
    inside = [name for name, (low, high) in bounds.items() if low <= PAPER["heads"] <= high]
    held = f"the interval holds 0.16 in: {', '.join(inside) or 'none'}"
    return [
        *claims,
        Claim("exponent of heads by reading", "; ".join(shown), "0.16", None, "1 and 2 layers"),
        Claim("reading nearest to the paper's", near, "not said", None, held),
    ]
