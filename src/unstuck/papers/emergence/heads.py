"""Figure 13: plateau against the number of layers and of heads, in three readings of its caption.

B.3. The caption says that more heads make the network wider, not which width. In fig13 the residual stream stays at 256
and every head has queries, keys and values of 64, so that attention gets wider; in fig13-split heads share a width of
256; in fig13-width the residual stream is 64 a head. The three readings share the runs with four heads. fig13 alone has
verdicts; the two others stand beside.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Picture

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, finished, grid
from unstuck.papers.plateaus import exponent_text, fit_or_none, law_text, plot_plateaus
from unstuck.papers.style import BLACK, PAPER_GREY, note, panels

from ._regression import law_claims

FORMULA = "d + T + layers + heads"
NAMES = {"layers": "L", "heads": "H"}
PAPER = {"d": 1.27, "T": 0.70, "layers": 0.06, "heads": 0.16}
PAPER_TEXT = "1.03 $d^{1.27} T^{0.70} L^{0.06} H^{0.16}$, R² = 0.995"
WIDTH, HEAD = 256, 64
LAYERS = [1, 2]  # that all readings have
DECIDES = "the paper's grid in all three readings would tell"
OWN, WIDER, SHARED = "residual stream of 64 a head", "heads of 64 beside a stream of 256", "heads that share 256"

Grid = tuple[list[int], list[int], list[int], list[int], list[int]]  # T, d, layers, heads, seeds
FULL: Grid = ([16, 32, 64, 128, 256], [16, 32, 64, 128], [1, 2, 4], [1, 2, 4, 8], [0, 1, 2, 3, 4])
TWO_LAYERS: Grid = ([16, 32], [8, 16], LAYERS, [1, 2, 4, 8], [0, 1])


def _wider(profile: Profile) -> list[TieredRun]:
    grids: dict[Profile, Grid] = {
        "quick": ([12, 16], [8, 12], [1, 2], [1, 4], [0]),
        "cpu": ([16, 32], [8, 16], [1, 2, 3], [1, 2, 4, 8], [0, 1]),
        "paper": FULL,
    }
    T, d, layers, heads, seeds = grids[profile]
    return grid("regression", 2, seeds, task__T=T, task__d=d, model__layers=layers, model__heads=heads)


def _by_heads(tier: int, sizes: Grid, width: Callable[[int], dict[str, Any]]) -> list[TieredRun]:
    """A grid whose widths depend on the number of heads."""
    T, d, layers, heads, seeds = sizes
    lists = {"task__T": T, "task__d": d, "model__layers": layers}
    return [run for n in heads for run in grid("regression", tier, seeds, {"model.heads": n, **width(n)}, **lists)]


def _split(profile: Profile) -> list[TieredRun]:
    grids = {"quick": ([12, 16], [8, 12], [1], [1, 4], [0]), "cpu": TWO_LAYERS, "paper": FULL}
    return _by_heads(2, grids[profile], lambda n: {"model.qk": WIDTH // n})


def _streams(profile: Profile) -> list[TieredRun]:
    grids = {"quick": ([8, 12], [4], LAYERS, [1, 4], [0]), "cpu": TWO_LAYERS, "paper": FULL}
    return _by_heads(1, grids[profile], lambda n: {"model.width": HEAD * n})


def _largest(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["d"] == table["d"].max()) & (table["T"] == table["T"].max())]


@dataclass(frozen=True)
class HeadsFigure:
    """One reading: plateaus over heads and over layers, at the largest T and d, with the law. Only the reading that the
    caption suggests can agree or differ."""

    title: str
    runs: Callable[[Profile], list[TieredRun]]
    judges: bool = True

    @once
    def law(self, table: pd.DataFrame) -> PowerLaw | None:
        """Without a term of the layers where their number does not vary."""
        return fit_or_none(table, FORMULA if len(set(table["layers"])) > 1 else FORMULA.replace("layers + ", ""))

    def draw(self, table: pd.DataFrame) -> Picture:
        law, sizes = self.law(table), _largest(table)
        picture, axes = panels(2, width=4.4, height=3.9)
        for ax, x, by in ((axes[0], "heads", "layers"), (axes[1], "layers", "heads")):
            plot_plateaus(ax, sizes, x, by, law)
            ax.set_ylim(top=ax.get_ylim()[1] * 2)
        axes[0].legend(loc="upper right", fontsize=7.5)
        axes[1].legend(loc="upper right", fontsize=7.5, ncols=2)
        axes[0].set_title(f"T = {sizes['T'].iloc[0]}, d = {sizes['d'].iloc[0]}")
        note(axes[0], f"ours:  {law_text(law, NAMES)}\npaper: {PAPER_TEXT}")
        return picture

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        law = self.law(table)
        terms = PAPER if law is None else {term: PAPER[term] for term in law.exponents}
        claims = law_claims(law, terms, r2=0.995, decides=DECIDES)
        return claims if self.judges else _beside(claims)


def _beside(claims: list[Claim]) -> list[Claim]:
    """Claims of a reading that may not be the paper's: they can neither agree nor differ."""
    return [replace(claim, agrees=None, note="" if claim.paper is None else "another reading") for claim in claims]


@dataclass(frozen=True)
class ReadingsFigure:
    """One reading, and the exponent of the heads in all three."""

    title: str
    runs: Callable[[Profile], list[TieredRun]]

    def data(self, done: Finished) -> pd.DataFrame:
        """The runs of this reading and, as far as the store has them, those of the two others."""
        if done.results.empty:
            return done.results
        others = {WIDER: _wider(done.profile), SHARED: _split(done.profile)}
        parts = [finished(mine, done.store).assign(reading=name) for name, mine in others.items()]
        return pd.concat([done.results.assign(reading=OWN), *(p for p in parts if len(p))], ignore_index=True)

    @once
    def laws(self, table: pd.DataFrame) -> dict[str, PowerLaw]:
        """The law of each reading, over the layers that all have."""
        same = table[table["layers"].isin(LAYERS)]
        laws = {str(name): fit_or_none(part, FORMULA) for name, part in same.groupby("reading", sort=False)}
        return {name: law for name, law in laws.items() if law is not None}

    def draw(self, table: pd.DataFrame) -> Picture:
        laws, sizes = self.laws(table), _largest(table[table["reading"] == OWN])
        picture, (left, right) = panels(2, width=4.6, height=3.9)
        plot_plateaus(left, sizes, "heads", "layers", laws.get(OWN))
        left.set_ylim(top=left.get_ylim()[1] * 2)
        left.legend(loc="upper right", fontsize=7.5)
        left.set_title(f"T = {sizes['T'].iloc[0]}, d = {sizes['d'].iloc[0]}, width 64 a head")
        note(left, f"ours:  {law_text(laws.get(OWN), NAMES)}\npaper: {PAPER_TEXT}")
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

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        laws, paper = self.laws(table), PAPER["heads"]
        claims = _beside(law_claims(laws.get(OWN), PAPER, r2=0.995, decides=DECIDES))
        if len(laws) < 3:
            return [*claims, Claim("exponent of heads by reading", "not all readings are there yet", "0.16", None)]
        shown = "; ".join(f"{name}: {exponent_text(law, 'heads')}" for name, law in laws.items())
        near = min(laws, key=lambda name: abs(laws[name].exponents["heads"] - paper))
        bounds = {name: law.intervals["heads"] for name, law in laws.items()}
        inside = [name for name, (low, high) in bounds.items() if low <= paper <= high]
        held = f"the interval holds 0.16 in: {', '.join(inside) or 'none'}"
        return [
            *claims,
            Claim("exponent of heads by reading", shown, "0.16", None, "1 and 2 layers"),
            Claim("reading nearest to the paper's", near, "not said", None, held),
        ]


FIGURES: dict[str, HeadsFigure | ReadingsFigure] = {
    "fig13": HeadsFigure("Figure 13: plateau against the number of layers and of heads", _wider),
    "fig13-split": HeadsFigure("fig13-split: Figure 13 with heads that share the width", _split, judges=False),
    "fig13-width": ReadingsFigure("fig13-width: Figure 13 with a residual stream that grows with the heads", _streams),
}
