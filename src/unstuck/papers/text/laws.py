"""Steps until induction heads form, against batch, context, repetition and size, with power laws.

A run is a GPT with two layers, attention only and layer normalisation, on the default corpus (1,024 BPE tokens). Heads
have formed when the copying advantage is 2 nats on random sequences of one length. Where batch and context vary, a
second event is timed too: 2 nats at the end of a context of text. A run goes on until it has both, at most twice as
long as it took to the first. Runs that have not reached an event by their last step count as censored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture
from scipy import stats

from unstuck.columns import CLEAN_LOSS, LIKE_LOSS, STEP
from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import exponent_text, fit_or_none, law_text, plot_plateaus
from unstuck.papers.style import legend_outside, note, panels

from ._published import AOYAMA, EQUAL_TOKENS, INVERSE, INVERSE_ROOT, MUSAT, ZUCCHET, verdicts
from ._runs import ALONE, BOTH, BURST, IN_TEXT, LONG, SMALL, Event, blind_seeds

LAW_BURST = 0.5  # with batch 8 some runs with 0.25 do not form by step 20,000; with 0.5 all pilot runs do
CLEAN_AT = 6000  # step at which the loss on clean text is compared
#: Context and batch: 2,048 tokens a step, to within 2%. A law counts sizes, not seeds: with three contexts its interval
#: would be wider than the question.
EQUAL = [(32, 64), (48, 43), (64, 32), (96, 21), (128, 16)]
NATURAL = [(8, 32), (32, 64), (128, 128)]  # batch, context
Laws = Mapping[Event, PowerLaw | None]


@dataclass(frozen=True)
class TextFigure:
    """Every run a dot over `x`, coloured by the value of `by`, and the law `formula` as lines; a panel an event."""

    title: str
    runs: Callable[[Profile], list[TieredRun]]
    x: str
    by: str
    formula: str
    heading: str
    claims: Callable[[pd.DataFrame, Laws], list[Claim]]
    fitted: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table  # the runs that the law is of
    events: tuple[Event, ...] = (ALONE,)
    in_parts: bool = False  # a law of half a grid would mislead
    ALSO = ("width",)

    @once
    def laws(self, table: pd.DataFrame) -> Laws:
        return {event: fit_or_none(event.of(self.fitted(table)), self.formula) for event in self.events}

    def data(self, done: Finished) -> pd.DataFrame:
        """A row for each run, with the loss on text without and with repetition at one step."""
        table = done.results.assign(wanted=len(done.runs))
        return table if table.empty else table.merge(_losses(done.curves), on="run_id", how="left")

    def draw(self, table: pd.DataFrame) -> Picture:
        picture, axes = panels(len(self.events), width=5.8, height=4.0)
        shown = table[table[self.x] > 0]  # the axis is logarithmic
        whole = set(self.fitted(shown)["run_id"]) == set(shown["run_id"])
        for ax, (event, law) in zip(axes, self.laws(table).items(), strict=True):
            plot_plateaus(ax, event.of(shown), self.x, self.by, law if whole else None, event.axis)
            ax.set_ylim(top=ax.get_ylim()[1] * 2)
            note(ax, law_text(law))
            ax.set_title(self.heading)
        legend_outside(picture, axes[-1])
        return picture

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        laws = self.laws(table)
        fitted = [
            Claim(f"runs fitted, {event.name}", f"{law.n} formed, {law.censored} not by their last step")
            for event, law in laws.items()
            if law is not None
        ]
        return [*runs_in(table), *self.claims(table, laws), *fitted]


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
    fixed = {"task.burst": LAW_BURST, "train.max_steps": 2 * LONG, **BOTH}
    seeds = blind_seeds(3 if profile == "cpu" else 5)
    return grid("text", 1, seeds, fixed, train__batch=[8, 32, 128], task__context=[32, 64, 128])


def _law_claims(table: pd.DataFrame, laws: Laws) -> list[Claim]:
    where = f"batch 8 to 128, context 32 to 128, burst {LAW_BURST:g}"
    claims = []
    for event, law in laws.items():
        claims += verdicts(law, "batch", [AOYAMA], where, event)
        claims += verdicts(law, "context", [AOYAMA, MUSAT, ZUCCHET], where, event)
    return claims


# -- text without added repetition


def _natural_runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        return grid("text", 1, [0], SMALL)
    cells = [{"train.batch": batch, "task.context": context, "train.max_steps": LONG} for batch, context in NATURAL]
    return [run for cell in cells for run in grid("text", 2, blind_seeds(1), cell)]


def _natural_claims(table: pd.DataFrame, laws: Laws) -> list[Claim]:
    batch, context = (table[c].astype(str) for c in ("batch", "context"))
    cells = table.assign(cell="batch " + batch + ", context " + context)
    return [Claim(f"steps, by step {LONG:,} at most", means(cells, "cell"))]


# -- context at equal tokens a step


def _equal_runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        return grid("text", 1, [0], {**SMALL, "task.burst": BURST}, task__context=[32, 48])
    runs = []
    for lag in ("random", "half"):
        for context, batch in EQUAL if lag == "random" else EQUAL[::2]:
            fixed = {"task.context": context, "train.batch": batch, "task.burst": BURST, "task.lag": lag}
            runs += grid("text", 1, blind_seeds(5), {**fixed, "train.max_steps": LONG, **BOTH})
    return runs


def _random_lag(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["lag"] == "random"]


def _equal_claims(table: pd.DataFrame, laws: Laws) -> list[Claim]:
    """Verdicts where the distance of the repetition is random. Where it is fixed, the exponents stand beside: a model
    may then learn that distance instead of induction."""
    where = f"{', '.join(f'context {c} x batch {b}' for c, b in EQUAL)}; burst {BURST:g}, five seeds"
    claims = []
    for event, law in laws.items():
        claims += verdicts(law, "context", [EQUAL_TOKENS, ZUCCHET, MUSAT], where, event)
    rows_of = dict(list(table.groupby("lag")))
    for event in laws:
        fixed = fit_or_none(event.of(rows_of.get("half", table[:0])), "context")
        text = "too few runs yet" if fixed is None else exponent_text(fixed, "context")
        claims.append(Claim(f"exponent of context, {event.name}, repetition at {_DISTANCE['half']}", text))
    for lag, event in product(rows_of, laws):
        runs, where = event.of(rows_of[lag]), f"{event.name}, repetition at {_DISTANCE[str(lag)]}"
        claims.append(Claim(f"steps by context, {where}", means(runs, "context")))
        note = "seeds are its only noise, so it says nothing of contexts between or beyond"
        claims.append(Claim(f"exponent from the shortest to the longest context, {where}", between(runs), note=note))
    return claims


def between(table: pd.DataFrame) -> str:
    """The exponent between the shortest and the longest context alone, with Welch's 95% interval over seeds. The law's
    interval is wider: it has one degree of freedom where there are three contexts."""
    contexts = sorted(table["context"].unique())
    if len(contexts) < 2:
        return "too few runs yet"
    ends = [table[table["context"] == context] for context in (contexts[-1], contexts[0])]
    if any(len(rows) < 2 for rows in ends) or any((rows["status"] != "emerged").any() for rows in ends):
        return "too few runs formed"
    late, early = (np.log(rows["plateau_steps"].to_numpy(dtype=float)) for rows in ends)
    interval = stats.ttest_ind(late, early, equal_var=False).confidence_interval(0.95)
    values = np.array([late.mean() - early.mean(), *interval]) / np.log(contexts[-1] / contexts[0])
    return f"{values[0]:.2f} ({values[1]:.2f} to {values[2]:.2f})"


_DISTANCE = {"random": "a random distance", "half": "half of the context"}

# -- repetition


def _repetition_runs(profile: Profile) -> list[TieredRun]:
    if profile == "quick":
        return grid("text", 1, [0], SMALL, task__burst=[0.25, 0.5])
    fixed = {"train.max_steps": LONG, "train.at_least": CLEAN_AT}
    return grid("text", 1, blind_seeds(3), fixed, task__burst=[0.0, 0.02, 0.05, 0.1, 0.25, 0.5])


def _some(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["burst"] > 0]


def _repetition_claims(table: pd.DataFrame, laws: Laws) -> list[Claim]:
    where = "burst 0.02 to 0.5, batch 32, context 64"
    claims = verdicts(laws[ALONE], "burst", [INVERSE, INVERSE_ROOT], where, ALONE)
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
    return grid("text", 2, blind_seeds(3), fixed, model__heads=[1, 2, 4, 8], model__width=[64, 128, 256])


def _size_claims(table: pd.DataFrame, laws: Laws) -> list[Claim]:
    law = laws[ALONE]
    if law is None:
        return [Claim("exponents of heads and width", "too few runs yet")]
    claims = []
    for term, aoyama, baherwani in (("heads", "0", "below 0"), ("width", "0", "about 0")):
        said = f"Aoyama et al. 2025: {aoyama}; Baherwani et al. 2026: {baherwani}"
        claims.append(Claim(f"exponent of {term} in the steps", exponent_text(law, term), said))
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
        events=(ALONE, IN_TEXT),
    ),
    "text-law": TextFigure(
        "text-law: steps until induction heads form, against batch and context",
        _law_runs,
        x="context",
        by="batch",
        formula="batch + context",
        heading=f"burst {LAW_BURST:g}",
        claims=_law_claims,
        events=(ALONE, IN_TEXT),
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
