"""Figure 3 left: a Transformer's plateau grows with d and T as a power law.

Section 2.4. The paper's 2-layer, 4-head Transformer, Adam, no repetition. The law is fitted to the runs of the left
and the middle panel together (D.2).
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import (
    fit_or_none,
    law_claims,
    law_text,
    left_runs,
    local_exponents,
    middle_runs,
    plot_plateaus,
    spread,
)
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import legend_outside, note, panels

FORMULA, NAMES = "d + T/B", {"d": "d", "T/B": "(T/B)"}
PAPER = {"d": 1.29, "T/B": 0.80}


def runs(profile: Profile) -> list[TieredRun]:
    both = {run.spec.run_id: run for run in (*middle_runs(profile), *left_runs(profile))}
    return list(both.values())


def draw(table: pd.DataFrame) -> Figure:
    law = fit_or_none(table, FORMULA)
    picture, (ax,) = panels(width=5.6, height=4.0)
    left = table[table["B"] == 1]
    plot_plateaus(ax, left, x="d", by="T", law=law, xlabel="dimension d", label="T")
    ax.set_ylim(top=ax.get_ylim()[1] * 4)
    legend_outside(picture, ax)
    note(ax, f"ours:  {law_text(law, NAMES)}\npaper: 0.76 $d^{{1.29}}$ $(T/B)^{{0.80}}$, R² = 0.995")
    ax.set_title("Transformer, no repetition")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    law = fit_or_none(table, FORMULA)
    claims = law_claims(law, PAPER, r2=0.995)
    claims += [local_exponents(table[table["B"] == 1], "d"), local_exponents(table[table["B"] == 1], "T")]
    if law is not None:
        claims.append(Claim("constant", law.constant, 0.76, None, "for other exponents"))
        claims.append(Claim("spread over seeds", f"{spread(table, ['T', 'd', 'B']):.1%} of the plateau", None, None))
    return claims
