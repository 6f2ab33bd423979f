"""fig13-split: Figure 13 with heads that share the width.

In fig13 each head has queries, keys and values of 64, so that more of them make attention wider, as the caption of the
paper's Figure 13 has it; here they split 256 among them, which is the same for the usual four.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import fit_or_none, law_claims
from unstuck.papers.emergence.fig13 import FORMULA, PAPER, draw_heads
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid

WIDTH = 256


def runs(profile: Profile) -> list[TieredRun]:
    T, d, layers, heads, seeds = {
        "quick": ([12, 16], [8, 12], [1], [1, 4], [0]),
        "cpu": ([16, 32], [8, 16], [1, 2], [1, 2, 4, 8], [0, 1]),
        "paper": ([16, 32, 64, 128, 256], [16, 32, 64, 128], [1, 2, 4], [1, 2, 4, 8], [0, 1, 2, 3, 4]),
    }[profile]
    return [
        run
        for n in heads
        for run in grid(
            "regression",
            2,
            seeds,
            {"model.heads": n, "model.qk": WIDTH // n},
            task__T=T,
            task__d=d,
            model__layers=layers,
        )
    ]


def draw(table: pd.DataFrame) -> Figure:
    return draw_heads(table, _formula(table))


def compare(table: pd.DataFrame) -> list[Claim]:
    terms = {term: PAPER[term] for term in _formula(table).split(" + ")}
    return law_claims(fit_or_none(table, _formula(table)), terms, r2=0.995)


def _formula(table: pd.DataFrame) -> str:
    return FORMULA if len(set(table["layers"])) > 1 else FORMULA.replace("layers + ", "")
