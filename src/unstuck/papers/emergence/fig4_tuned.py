"""fig4-tuned: the law of recall with the learning rate tuned by a race.

Figure 4 right as the paper measures it: for each size and seed, the rates 1e-4, 3e-5 and 1e-5 race to 50%, one stopped
once it has passed the best plateau so far. A size takes the rate that got there with the most seeds; of such the one
with the shortest mean plateau, if with all, else the one that won the most races: of a run that was stopped one knows
no more than that it was slower. For the law at 5% the same is done with the steps to 5%.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._recall import FORMULA, NAMES, RATES, SMALL, both_laws, fastest, law_runs, plot_plateaus
from unstuck.papers.emergence._regression import fit_or_none, law_text
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, raced
from unstuck.papers.style import legend_outside, note, panels


def runs(profile: Profile) -> list[TieredRun]:
    rates = [SMALL["optim.lr"], 1e-3] if profile == "quick" else RATES
    return raced([r._replace(tier=3) for r in law_runs(profile)], rates)


def draw(table: pd.DataFrame) -> Figure:
    best = fastest(table, 0.5)
    law = fit_or_none(best, FORMULA)
    picture, (ax,) = panels(width=5.6, height=4.0)
    plot_plateaus(ax, best, law)
    ax.set_ylim(top=ax.get_ylim()[1] * 4)
    ax.set_ylabel("steps to 50% accuracy")
    ax.set_title("recall, learning rate tuned")
    legend_outside(picture, ax)
    paper = r"0.55 $\mathrm{tokens}^{0.79}$ $\mathrm{pairs}^{2.25}$ (to 5%)"
    note(ax, f"ours:  {law_text(law, NAMES)}\npaper: {paper}")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    best = fastest(table, 0.5)
    chosen = best[best["status"] == "emerged"].drop_duplicates(["tokens", "pairs"])["lr"].value_counts()
    text = ", ".join(f"{rate:g} in {count} sizes" for rate, count in chosen.items())
    return [
        *both_laws(table),
        Claim("learning rate chosen", text, "smaller for large sizes", None, "stopped least often, then the mean"),
    ]
