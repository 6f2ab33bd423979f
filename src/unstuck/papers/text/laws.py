"""Steps until induction heads form, against batch, context, repetition and size, with power laws.

A run is a GPT with two layers, attention only and layer normalisation, on the default corpus (1,024 BPE tokens). Heads
have formed when the copying advantage is 2 nats. Runs that have not formed by their last step count as censored.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture

from unstuck.columns import CLEAN_LOSS, LIKE_LOSS, STEP
from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import fit_or_none, law_text, plot_plateaus
from unstuck.papers.style import legend_outside, note, panels

from ._published import (
    AOYAMA,
    EQUAL_TOKENS,
    INVERSE,
    INVERSE_ROOT,
    MUSAT,
    ZUCCHET,
    verdicts,
)

SMALL = {"model.width": 16, "model.heads": 2, "train.max_steps": 40, "task.vocabulary": 256}  # a quick look
BURST = 0.25  # share of sequences that repeat themselves where another size is varied
LAW_BURST = 0.5  # with batch 8 some runs with 0.25 do not form by step 20,000; with 0.5 all pilot runs do
LONG = 20_000  # steps at most
CLEAN_AT = 6000  # step at which the loss on clean text is compared
EQUAL = [(32, 64), (64, 32), (128, 16)]  # context, batch: 2,048 tokens a step
NATURAL = [(8, 32), (32, 64), (128, 128)]  # batch, context


@dataclass(frozen=True)
class TextFigure:
    """Every run a dot over `x`, coloured by the value of `by`, and the law `formula` as lines."""

    title: str
    runs: Callable[[Profile], list[TieredRun]]
    x: str
    by: str
    formula: str
    heading: str
    claims: Callable[[pd.DataFrame, PowerLaw | None], list[Claim]]
    fitted: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table  # the runs that the law is of
    in_parts: bool = False  # a law of half a grid would mislead
    ALSO = ("width",)

    @once
    def law(self, table: pd.DataFrame) -> PowerLaw | None:
        return fit_or_none(self.fitted(table), self.formula)

    def data(self, done: Finished) -> pd.DataFrame:
        """A row for each run, with the loss on text without and with repetition at one step."""
        table = done.results.assign(wanted=len(done.runs))
        return table if table.empty else table.merge(_losses(done.curves), on="run_id", how="left")

    def draw(self, table: pd.DataFrame) -> Picture:
        picture, (ax,) = panels(width=5.8, height=4.0)
        law = self.law(table)
        shown = table[table[self.x] > 0]  # the axis is logarithmic
        drawn_law = law if set(self.fitted(shown)["run_id"]) == set(shown["run_id"]) else None
        plot_plateaus(ax, shown, self.x, self.by, drawn_law, "steps until heads form (copying 2 nats)")
        ax.set_ylim(top=ax.get_ylim()[1] * 2)
        legend_outside(picture, ax)
        note(ax, law_text(law))
        ax.set_title(self.heading)
        return picture

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        law = self.law(table)
        fitted = [] if law is None else [Claim("runs fitted", f"{law.n} formed, {law.censored} not by their last step")]
        return [*runs_in(table), *self.claims(table, law), *fitted]


def _losses(curves: pd.DataFrame) -> pd.DataFrame:
    """The loss at `CLEAN_AT` of each run that went on so far: on clean text, and on text with repetition."""
    rows = []
    for run_id, run in curves.groupby("run_id"):
        there = run[run[STEP] <= CLEAN_AT]
        reached = run[STEP].max() >= CLEAN_AT
        found = {c: there[c].iloc[-1] if reached else np.nan for c in (CLEAN_LOSS, LIKE_LOSS)}
        rows.append({"run_id": run_id, **found})
    return pd.DataFrame(rows)


def means(table: pd.DataFrame, by: str) -> str:
    """`64: 3,120 (5 of 5)`: the geometric mean of the steps for each value, and how many runs formed."""
    parts = []
    for value, rows in table.groupby(by):
        formed = rows[rows["status"] == "emerged"]["plateau_steps"]
        name = value if isinstance(value, str) else f"{value:g}"
        mean = f"{np.exp(np.log(formed).mean()):,.0f} " if len(formed) else ""
        parts.append(f"{name}: {mean}({len(formed)} of {len(rows)})")
    return ", ".join(parts)


# -- batch and context


def _law_runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        fixed = {**SMALL, "task.burst": LAW_BURST}
        return grid("text", 1, [0], fixed, train__batch=[4, 8], task__context=[32, 48])
    fixed = {"task.burst": LAW_BURST, "train.max_steps": 2 * LONG}
    seeds = [0, 1, 2] if profile == "cpu" else list(range(5))
    return grid("text", 1, seeds, fixed, train__batch=[8, 32, 128], task__context=[32, 64, 128])


def _law_claims(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    where = f"batch 8 to 128, context 32 to 128, burst {LAW_BURST:g}"
    claims = verdicts(law, "batch", [AOYAMA], where)
    return [*claims, *verdicts(law, "context", [AOYAMA, MUSAT, ZUCCHET], where)]


# -- text without added repetition


def _natural_runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        return grid("text", 1, [0], SMALL)
    cells = [{"train.batch": batch, "task.context": context, "train.max_steps": LONG} for batch, context in NATURAL]
    return [run for cell in cells for run in grid("text", 2, [0], cell)]


def _natural_claims(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    batch, context = (table[c].astype(str) for c in ("batch", "context"))
    cells = table.assign(cell="batch " + batch + ", context " + context)
    return [Claim(f"steps, by step {LONG:,} at most", means(cells, "cell"))]


# -- context at equal tokens a step


def _equal_runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        return grid("text", 1, [0], {**SMALL, "task.burst": BURST}, task__context=[32, 48])
    runs = []
    for lag in ("random", "half"):
        for context, batch in EQUAL:
            fixed = {"task.context": context, "train.batch": batch, "task.burst": BURST, "task.lag": lag}
            runs += grid("text", 1, range(5), {**fixed, "train.max_steps": LONG})
    return runs


def _random_lag(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["lag"] == "random"]


def _equal_claims(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    where = f"{', '.join(f'context {c} x batch {b}' for c, b in EQUAL)}; burst {BURST:g}, five seeds"
    claims = verdicts(law, "context", [EQUAL_TOKENS, ZUCCHET, MUSAT], where)
    for lag, rows in table.groupby("lag"):
        claims.append(Claim(f"steps by context, repetition at {_DISTANCE[str(lag)]}", means(rows, "context")))
    return claims


_DISTANCE = {"random": "a random distance", "half": "half of the context"}

# -- repetition


def _repetition_runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        return grid("text", 1, [0], SMALL, task__burst=[0.25, 0.5])
    fixed = {"train.max_steps": LONG, "train.at_least": CLEAN_AT}
    return grid("text", 1, range(3), fixed, task__burst=[0.0, 0.02, 0.05, 0.1, 0.25, 0.5])


def _some(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["burst"] > 0]


def _repetition_claims(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    where = "burst 0.02 to 0.5, batch 32, context 64"
    claims = verdicts(law, "burst", [INVERSE, INVERSE_ROOT], where)
    claims.append(Claim("steps by share of sequences that repeat", means(table, "burst")))
    known = table.dropna(subset=[CLEAN_LOSS]) if CLEAN_LOSS in table else table[:0]
    if len(known):
        losses = ", ".join(f"{burst:g}: {rows[CLEAN_LOSS].mean():.3f}" for burst, rows in known.groupby("burst"))
        claims.append(Claim(f"loss on clean text at step {CLEAN_AT:,}, by burst", losses))
    return claims


# -- heads and width


def _size_runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        return grid("text", 1, [0], {**SMALL, "task.burst": BURST}, model__heads=[1, 2])
    fixed = {"task.burst": BURST, "train.max_steps": LONG}
    return grid("text", 2, range(3), fixed, model__heads=[1, 2, 4, 8], model__width=[64, 128, 256])


def _size_claims(table: pd.DataFrame, law: PowerLaw | None) -> list[Claim]:
    if law is None:
        return [Claim("exponents of heads and width", "too few runs yet")]
    claims = []
    for term, aoyama, baherwani in (("heads", "0", "below 0"), ("width", "0", "about 0")):
        low, high = law.intervals[term]
        text = f"{law.exponents[term]:.2f} ({low:.2f} to {high:.2f})"
        said = f"Aoyama et al. 2025: {aoyama}; Baherwani et al. 2026: {baherwani}"
        claims.append(Claim(f"exponent of {term} in the steps", text, said))
    return [*claims, Claim("steps by heads", means(table, "heads")), Claim("steps by width", means(table, "width"))]


FIGURES: dict[str, TextFigure] = {
    "context-at-equal-tokens": TextFigure(
        "context-at-equal-tokens: a longer context delays induction heads, at equal tokens a step",
        _equal_runs,
        x="context",
        by="lag",
        formula="context",
        heading="2,048 tokens a step",
        claims=_equal_claims,
        fitted=_random_lag,
    ),
    "text-law": TextFigure(
        "text-law: steps until induction heads form, against batch and context",
        _law_runs,
        x="context",
        by="batch",
        formula="batch + context",
        heading=f"burst {LAW_BURST:g}",
        claims=_law_claims,
    ),
    "text-natural": TextFigure(
        "text-natural: induction heads on text without added repetition",
        _natural_runs,
        x="context",
        by="batch",
        formula="context",
        heading="text without added repetition",
        claims=_natural_claims,
        in_parts=True,
    ),
    "text-repetition": TextFigure(
        "text-repetition: sequences that repeat themselves bring induction heads forward",
        _repetition_runs,
        x="burst",
        by="batch",
        formula="burst",
        heading="batch 32, context 64",
        claims=_repetition_claims,
        fitted=_some,
    ),
    "text-size": TextFigure(
        "text-size: heads and width at one batch and context",
        _size_runs,
        x="heads",
        by="width",
        formula="heads + width",
        heading=f"batch 32, context 64, burst {BURST:g}",
        claims=_size_claims,
    ),
}
