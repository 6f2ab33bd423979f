"""Figure 3 middle: in-context repetition shortens a Transformer's plateau.

Section 2.4. As Figure 3 left, for several B; the exponent of B is also fitted free of that of T.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import (
    fit_or_none,
    law_claims,
    law_text,
    local_exponents,
    middle_runs,
    plot_plateaus,
)
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import legend_outside, note, panels

FORMULA, NAMES = "d + B", {"d": "d", "B": "B"}
PAPER = {"d": 1.29, "B": -0.80}


def runs(profile: Profile) -> list[TieredRun]:
    return middle_runs(profile)


def draw(table: pd.DataFrame) -> Figure:
    law = fit_or_none(table, FORMULA)
    picture, (ax,) = panels(width=5.6, height=4.0)
    plot_plateaus(ax, table, x="d", by="B", law=law, xlabel="dimension d", label="B")
    ax.set_ylim(top=ax.get_ylim()[1] * 4)
    legend_outside(picture, ax)
    note(ax, f"ours:  {law_text(law, NAMES)}\npaper: $d^{{1.29}}$ $B^{{-0.80}}$ (with Figure 3 left: R² = 0.995)")
    ax.set_title(f"Transformer, in-context repetition, T = {table['T'].iloc[0]}")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = law_claims(fit_or_none(table, FORMULA), PAPER)
    return [*claims, local_exponents(table, "d"), local_exponents(table, "B")]
