"""Figure 4 right: recall emerges later with a larger vocabulary and with more pairs.

Section 3.2. Steps to 50% accuracy on clean data, and to the paper's 5%, without repetition. Guessing any value of the
context scores 1/pairs, more than 5% on grids as small as these, so our law is the one at 50%. The learning rate is
1e-4. In the `paper` profile it is tuned by a race to 50%: a size takes the rate that got there with the most seeds; of
such the one with the shortest mean plateau, if with all, else the one that won the most races.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim
from unstuck.papers.finished import Finished
from unstuck.papers.plateaus import law_text, plot_plateaus
from unstuck.papers.style import legend_outside, note, panels

from ._recall import NAMES, both_laws, fastest, law_runs, laws, layers_claim, with_layers

IN_PARTS = True  # a run that has not come to its end says nothing, but the others do


runs = law_runs


def data(done: Finished) -> pd.DataFrame:
    return with_layers(done.results, done.store)


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.4, height=4.0)
    for ax, threshold, title in ((axes[0], 0.5, "to 50% accuracy"), (axes[1], 0.05, "to 5%, as the paper measures")):
        part = fastest(table, threshold)
        ax.set_title(title)
        if part.empty:
            note(ax, "chance is above this")
            ax.set(xticks=[], yticks=[])
            continue
        law = laws(table)[threshold]
        plot_plateaus(ax, part, "pairs", "tokens", law, y="steps")
        ax.set_ylim(top=ax.get_ylim()[1] * 5)
        paper = r"0.55 $\mathrm{tokens}^{0.79}$ $\mathrm{pairs}^{2.25}$ (to 5%)"
        note(ax, f"ours:  {law_text(law, NAMES)}\npaper: {paper}")
    legend_outside(picture, axes[0])
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    return [*both_laws(table), *layers_claim(table), *_rates(table)]


def _rates(table: pd.DataFrame) -> list[Claim]:
    """The learning rates that sizes took, where several have raced."""
    if len(set(table["lr"])) == 1:
        return []
    best = fastest(table, 0.5)
    chosen = best[best["status"] == "emerged"].drop_duplicates(["tokens", "pairs"])["lr"].value_counts()
    text = ", ".join(f"{rate:g} in {count} sizes" for rate, count in chosen.items())
    return [Claim("learning rate chosen", text, "smaller for large sizes", None, "stopped least often, then the mean")]
