"""What the recall figures share: the law's grid by profile, laws at two thresholds, steps in words."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unstuck.laws import PowerLaw
from unstuck.laws.tables import at_threshold
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, grid, raced, tuned
from unstuck.papers.plateaus import fit_or_none
from unstuck.probes.circuit import ROLES
from unstuck.store.store import Store

from ._regression import law_claims

FORMULA, NAMES = "tokens + pairs", {"tokens": r"\mathrm{tokens}", "pairs": r"\mathrm{pairs}"}
PAPER = {"tokens": 0.79, "pairs": 2.25}
DECIDES = "the paper's grid, up to 256 tokens with three seeds, would tell"
LAYERS = {f"{role}_in": kind for role, kind in ROLES.items()}  # columns: layers, by what they are strongest in
RATES = [1e-4, 3e-5, 1e-5]  # that the paper tunes in
UNTIL_50, UNTIL_90 = [0.05, 0.5], [0.05, 0.5, 0.9]
#: For the quick profile: two layers of one head, small and fast.
SMALL: dict[str, Any] = {
    "model.layers": 2,
    "model.heads": 1,
    "model.width": 64,
    "model.qk": 32,
    "optim.lr": 3e-3,
    "train.batch": 64,
    "train.max_steps": 2000,
}


def law_runs(profile: Profile) -> list[TieredRun]:
    """Figure 4 right: plateau against vocabulary and pairs, no repetition. One learning rate; in the `paper` profile
    three race to 50%, each run stopped once it has passed the best plateau of its size and seed."""
    if profile == "quick":
        fixed = {**SMALL, "train.thresholds": UNTIL_50}
        return grid("recall", 1, [0], fixed, task__tokens=[12, 16], task__pairs=[3, 4])
    tokens, pairs, seeds, steps = {
        "cpu": ([32, 64, 128], [4, 6, 8, 12], [0, 1], 30_000),
        "paper": ([64, 128, 256], [8, 16, 32, 48], [0, 1, 2], 200_000),
    }[profile]
    fixed = {"train.thresholds": UNTIL_50, "train.max_steps": steps}
    runs = grid("recall", 1, seeds, fixed, task__tokens=tokens, task__pairs=pairs)
    return raced(runs, RATES) if profile == "paper" else runs


def paper_law(tokens: Any, pairs: Any) -> Any:
    """The paper's steps to 5% (Figure 4 right)."""
    return 0.55 * tokens**0.79 * pairs**2.25


def crossing(table: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """The table with the plateaus of one threshold; what is there before training is no plateau, and left out."""
    if f"crossing_{threshold:g}" not in table:
        table = table.assign(**{f"crossing_{threshold:g}": np.nan})
    table = at_threshold(table, threshold)
    return table[~(table["plateau_steps"] <= 0)]


def fastest(table: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """The plateaus of one threshold; where several rates have raced, those of the best rate of each size."""
    part = crossing(table, threshold)
    return tuned(part, ["tokens", "pairs"]) if len(set(part["lr"])) > 1 else part


@once
def laws(table: pd.DataFrame) -> dict[float, PowerLaw | None]:
    """The laws of the steps to 50% and to 5%."""
    return {level: fit_or_none(fastest(table, level), FORMULA) for level in UNTIL_50}


def both_laws(table: pd.DataFrame) -> list[Claim]:
    """The laws at 50% and at 5% beside the paper's, which is at 5%: only that one can agree with it."""
    halves = fastest(table, 0.5)
    at_50 = law_claims(laws(table)[0.5], PAPER, where=", to 50%", r2=0.982, decides=DECIDES)
    if len(whole := _all_emerged(halves)):
        where = f", to 50%, up to {whole['tokens'].max()} tokens, where all runs emerged"
        at_50 += law_claims(fit_or_none(whole, FORMULA), PAPER, where=where, r2=0.982, decides=DECIDES)
    at_5 = law_claims(laws(table)[0.05], PAPER, where=", to 5%", r2=0.982, decides=DECIDES)
    guess = guessed(table)
    if guess:
        alone = 1 / table["pairs"].max() > 0.05  # for all sizes: then it stands only beside the paper's
        notes = ["; ".join(filter(None, (c.note, guess))) for c in at_5]
        at_5 = [replace(c, agrees=None if alone else c.agrees, note=n) for c, n in zip(at_5, notes, strict=True)]
    return [*at_another_level(at_50), *at_5]


def at_another_level(claims: Sequence[Claim]) -> list[Claim]:
    """Claims of steps to 50%, which stand beside the paper's to 5% and can neither agree nor differ."""
    return [replace(c, agrees=None, note="the paper's is at 5%" if c.paper is not None else c.note) for c in claims]


def _all_emerged(part: pd.DataFrame) -> pd.DataFrame:
    """The runs with so few tokens that all emerged, if that are not all runs, nor those of one vocabulary: a law over
    all rests on the others' not having emerged."""
    late = part.loc[part["status"] != "emerged", "tokens"].min()
    few = part[part["tokens"] < late]
    return few if len(set(few["tokens"])) > 1 else few[:0]


def guessed(table: pd.DataFrame) -> str:
    """What has to be said of 5%, where a guess among the context's values scores more."""
    few, many = (1 / table["pairs"].agg(f) > 0.05 for f in ("min", "max"))
    return "a guess scores more" if many else "where there are few pairs, a guess scores more" if few else ""


def with_layers(table: pd.DataFrame, store: Path) -> pd.DataFrame:
    """Runs with the layer in which attention for copying, and for selection, is strongest at their end, counted from 1;
    of those that emerged."""
    where = Store(store)
    rows = []
    for run_id, status in zip(table.get("run_id", []), table.get("status", []), strict=True):
        curve = where.run(run_id).curve() if status == "emerged" else None
        rows.append({c: np.nan if curve is None else curve.best_head(kind)[0] + 1 for c, kind in LAYERS.items()})
    return table.assign(**pd.DataFrame(rows, index=table.index))


def layers_claim(table: pd.DataFrame, which: str = "") -> list[Claim]:
    """In which layers copying and selection are strongest, and in how many runs."""
    if not set(LAYERS) <= set(table):
        return []
    there = table.dropna(subset=list(LAYERS))
    counts = there.value_counts(list(LAYERS))
    listed = [f"{copies:.0f} and {selects:.0f} in {n}" for (copies, selects), n in counts.items()]
    text = f"{', '.join(listed) or 'none'} of {len(there)} runs that got to 50%"
    about = f"layers in which copying and selection are strongest{which}"
    return [Claim(about, text, "3 and 4 (Figure 17)", None, "by attention, when runs were stopped")]


def crossed(run: pd.DataFrame, level: float) -> float:
    """A run's step to an accuracy on clean data; infinite: never."""
    step = run[f"crossing_{level:g}"].iloc[0] if f"crossing_{level:g}" in run else np.nan
    return np.inf if np.isnan(step) else float(step)


def first_step(run: pd.DataFrame, column: str, level: float) -> float:
    """The first row's step at which an accuracy, smoothed over three rows, is at a level; infinite if never. For what
    has no crossing: accuracy on data like a run's own, and other levels."""
    above = np.flatnonzero(run[column].rolling(3, min_periods=1, center=True).mean() >= level)
    return float(run["step"].iloc[above[0]]) if len(above) else np.inf


def step_list(steps: Sequence[float], last: Sequence[float] | float, digits: int = 0) -> str:
    """Steps of several seeds, in the order of seeds, a run that never got there as `> its last step`.

    Examples:
        >>> step_list([float("inf"), 1200], 15000)
        '>15000, 1200'
    """
    lasts = [last] * len(steps) if isinstance(last, int | float) else last
    shown = zip(steps, lasts, strict=True)
    return ", ".join(f"{step:.{digits}f}" if np.isfinite(step) else f">{end:.{digits}f}" for step, end in shown)
