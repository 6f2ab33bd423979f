"""fig3-layernorm: the same law with layer normalisation, which the paper leaves out.

Not in the paper. Figure 3 left with layer normalisation before attention, perceptron and read-out, beside the same
sizes without it.
"""

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import (
    cell_ratios,
    fit_or_none,
    law_claims,
    law_text,
    plot_plateaus,
    ratio_text,
)
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import legend_outside, note, panels

FORMULA, NAMES = "d + T", {"d": "d", "T": "T"}
PAPER = {"d": 1.29, "T": 0.80}
NOT_THE_SAME = "the paper's is without"


def runs(profile: Profile) -> list[TieredRun]:
    T, d, seeds = {
        "quick": ([16, 32], [8, 12], [0]),
        "cpu": ([16, 32, 64], [8, 16, 32], [0, 1]),
        "paper": ([16, 32, 64, 128, 256], [8, 16, 32, 64, 128], [0, 1, 2, 3, 4]),
    }[profile]
    with_norm = grid("regression", 1, seeds, {"model.layer_norm": True}, task__T=T, task__d=d)
    return [*with_norm, *grid("regression", 1, seeds, task__T=T, task__d=d)]


def draw(table: pd.DataFrame) -> Figure:
    normed = table[table["layer_norm"]]
    law = fit_or_none(normed, FORMULA)
    picture, (ax,) = panels(width=5.6, height=4.0)
    plot_plateaus(ax, normed, x="d", by="T", law=law, xlabel="dimension d", label="T")
    ax.set_ylim(top=ax.get_ylim()[1] * 4)
    legend_outside(picture, ax)
    plain = fit_or_none(table[~table["layer_norm"]], FORMULA)
    note(ax, f"with layer norm: {law_text(law, NAMES)}\nwithout:  {law_text(plain, NAMES)}")
    ax.set_title("Transformer with layer normalisation")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    normed, plain = table[table["layer_norm"]], table[~table["layer_norm"]]
    # The paper's law is one without layer norm: it stands beside, and can neither agree nor differ.
    claims = [
        replace(claim, agrees=None, note=NOT_THE_SAME if claim.paper is not None else "")
        for claim in law_claims(fit_or_none(normed, FORMULA), PAPER, where=", with layer norm")
    ]
    ratio, left_out = cell_ratios(normed, plain)
    if len(ratio):
        text = ratio_text(ratio, left_out)
        claims.append(Claim("plateau with layer norm over without", text, None, None))
    return claims
