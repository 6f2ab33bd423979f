"""The figures of paper 2 that show runs in one of two ways, a row each: curves beside published values, or maps.

A row says which runs, what of them is drawn, and what was published. Figures 4, 5, 10 and B have files of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture
from scipy.optimize import linear_sum_assignment

from unstuck.columns import predictor
from unstuck.curve import Curve
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun
from unstuck.tasks.markov import Markov

from . import _published as values
from ._curves import (
    curve_table,
    draw_curves,
    draw_maps,
    draw_maps_by_head,
    first_seed,
    lag_weights,
    map_table,
    predictors_of,
    seed_map_table,
    truths_of,
)
from ._judge import Array, curve_claims, judged, judged_together, numbers
from ._published import Published, updates
from ._runs import (
    DROPOUT_ONCE,
    FARTHEST_FIRST,
    ONLINE,
    OVERLAP,
    QUICK_START,
    SGD,
    SGD_CONTEXT_STEPS,
    SMALL_START,
    TWO_LAYERS,
    TWO_LAYERS_FULL,
    UNEVEN,
    another_seed,
    full_runs,
    minimal_runs,
    with_contexts,
)

Runs = Callable[[Profile], list[TieredRun]]


@dataclass(frozen=True)
class CurveFigure:
    """Loss, KL to the truths, or to models of restricted context and the truth, and specialisation."""

    title: str
    runs: Runs
    published: Published
    maps: Published = field(default_factory=Published)  # whose specialisation is drawn beside
    predictors: Literal["truths", "contexts"] = "truths"

    def data(self, done: Finished) -> pd.DataFrame:
        table = curve_table(done)
        if self.predictors == "truths" or table.empty:
            return table
        return table.dropna(subset=Curve.of(table).context_names, how="all")  # runs that are compared with models

    def _columns(self, table: pd.DataFrame) -> list[str]:
        return truths_of(table) if self.predictors == "truths" else predictors_of(table)

    def draw(self, table: pd.DataFrame) -> Picture:
        short = self.title.partition(": ")[2]
        return draw_curves(table, self._columns(table), short, self.published, self.maps)

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        columns = self._columns(table)
        to = [predictor(c) for c in columns]
        names = "/".join(f"c={n}" if kind == "context" else "A1" if n == 1 else f"A1:{n}" for kind, n in to)
        return curve_claims(table, columns, names, self.published)


@dataclass(frozen=True)
class MapFigure:
    """Attention of the heads of layer 1 at several steps, mean over validation sequences; `by_head`, a map a head, and
    the pairs of lags that lead in them."""

    title: str
    runs: Runs
    published: Published
    by_head: bool = False
    ideal: Markov | None = None  # whose ideal map is drawn beside
    more: Callable[[pd.DataFrame], list[Claim]] = lambda table: []

    def data(self, done: Finished) -> pd.DataFrame:
        return seed_map_table(done) if self.by_head else map_table(done)

    def draw(self, table: pd.DataFrame) -> Picture:
        if self.by_head:
            return draw_maps_by_head(first_seed(table))
        return draw_maps(table, self.ideal if (table["teacher"] == "published").all() else None)

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        seeds = [c for c in table if c.startswith("index_")]
        claims = []
        if (table["teacher"] == "published").all():
            for step, theirs in self.published.specialisation.items():
                rows = table[table["step"] == updates(step)]
                ours = [float(rows[c].iloc[0]) if len(rows) else np.nan for c in seeds]
                claims.append(judged(f"specialisation index at step {step}", ours, theirs, self.published.decides))
            claims += self.more(table)
        return claims or [_leading_lags(table)]


def _leading(row: pd.Series) -> str:
    """The two lags with most of a head's attention."""
    top = row.sort_values(ascending=False).head(2)
    return ", ".join(f"{lag} ({weight:.2f})" for lag, weight in top.items())


def _mass(table: pd.DataFrame) -> list[Claim]:
    """Figure 2: attention of each head on the nearest group at step 60."""
    step = int(updates(60))
    if step not in set(table["step"]):
        return []
    mass = sorted(lag_weights(table, step).loc[:, 1:4].sum(axis=1))
    what = "attention of the heads on the nearest group at step 60, smallest first"
    return [Claim(what, numbers(mass), numbers(values.FIG2_MASS), None, "which head is ahead is chance")]


def _leading_lags(table: pd.DataFrame, theirs: str | None = None, note: str = "") -> Claim:
    """The two lags that each head of the first seed attends most at the last step."""
    step = int(table["step"].max())
    ours = "; ".join(_leading(row) for _, row in lag_weights(first_seed(table), step).iterrows())
    return Claim(f"lags that each head attends most, step {step}", ours, theirs, None, note)


def _lags(theirs: Mapping[tuple[int, int], float]) -> Callable[[pd.DataFrame], list[Claim]]:
    """The published pairs of lags, a head each: the heads of every seed are assigned to them so that they attend them
    most; which head takes which is chance."""

    def claims(table: pd.DataFrame) -> list[Claim]:
        step = int(table["step"].max())
        ours = np.array([_of_pairs(lag_weights(seed, step), list(theirs)) for seed in _by_seed(table, step)])
        pairs = "/".join(f"{a}-{b}" for a, b in theirs)
        name = f"attention a lag on {pairs}, a head each, step {step}"
        paper = ", ".join(f"{a}-{b} ({weight:.2f} a lag)" for (a, b), weight in theirs.items())
        return [
            judged_together(name, ours, list(theirs.values()), values.MORE_SEEDS),
            _leading_lags(table, paper, "which head takes which is chance"),
        ]

    return claims


def _by_seed(table: pd.DataFrame, step: int) -> list[pd.DataFrame]:
    last = table[table["step"] == step]
    return [seed for _, seed in last.groupby("seed")] if "seed" in table else [last]


def _of_pairs(weights: pd.DataFrame, pairs: Sequence[tuple[int, int]]) -> Array:
    """Mean attention a lag on each pair of lags, of the head that is assigned to it; from (heads, lags)."""
    attention = np.array([weights[list(pair)].mean(axis=1) for pair in pairs])  # (pairs, heads)
    return np.asarray(attention[linear_sum_assignment(-attention)])


# -- the runs that rows share


def _fig1(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1100, [150, 500, 1000], SMALL_START, QUICK_START, other_teachers=True)


def _full(profile: Profile) -> list[TieredRun]:
    runs = full_runs(profile, 1000, [0, 60, 300, 1000], DROPOUT_ONCE)
    return runs if profile == "quick" else [*runs, another_seed(runs[-1])]


def _full_contexts(profile: Profile) -> list[TieredRun]:
    runs = full_runs(profile, 1000, [0, 60, 300, 1000], DROPOUT_ONCE, tier=2)
    return with_contexts(runs, _contexts(profile, (4, 8)), profile)


def _every_update(profile: Profile) -> list[TieredRun]:
    runs = with_contexts(full_runs(profile, 1000, [0, 60, 300, 1000]), _contexts(profile, (4, 8)), profile)
    return runs if profile == "quick" else [*runs, another_seed(runs[-1])]


def _online(profile: Profile) -> list[TieredRun]:
    changes = {**SMALL_START, **ONLINE}
    return minimal_runs(profile, 2000, [0, 270, 580, 1500], changes, {**QUICK_START, **ONLINE}, other_teachers=True)


def _farthest(profile: Profile) -> list[TieredRun]:
    return full_runs(profile, 1500, [0, 70, 375, 1500], FARTHEST_FIRST, quick={"task.importance": "far"})


def _farthest_m(profile: Profile) -> list[TieredRun]:
    changes = {**FARTHEST_FIRST, **DROPOUT_ONCE, "task.m": 2.9}
    return full_runs(profile, 1500, [0, 70, 375, 1500], changes, quick={"task.importance": "far", "task.m": 2.9})


def _two_layers(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1000, changes=TWO_LAYERS, quick={"model.layers": 2})


def _two_layers_full(profile: Profile) -> list[TieredRun]:
    return full_runs(profile, 1000, changes=TWO_LAYERS_FULL, quick={"model.layers": 2})


def _two_layers_full_once(profile: Profile) -> list[TieredRun]:
    changes = {**TWO_LAYERS_FULL, **DROPOUT_ONCE}
    return full_runs(profile, 1000, changes=changes, quick={"model.layers": 2}, tier=2)


def _uneven(profile: Profile) -> list[TieredRun]:
    runs = minimal_runs(profile, 1000, [0, 100, 200, 1000], UNEVEN, {"task.span": 2, **UNEVEN}, other_teachers=True)
    return with_contexts(runs, (2, 4), profile)


def _overlap(heads: int) -> Runs:
    def runs(profile: Profile) -> list[TieredRun]:
        quick = {"task.span": 2, "task.stride": 1, "model.heads": heads}
        found = minimal_runs(profile, 1960, [100, 400, 1900], {**OVERLAP, "model.heads": heads}, quick)
        return with_contexts(found, _contexts(profile, (4, 6)), profile) if heads == 4 else found

    return runs


def _sgd(profile: Profile) -> list[TieredRun]:
    runs = full_runs(profile, 7000, [0, 600, 3800, 6600], SGD, tier=3)
    return with_contexts(runs, _contexts(profile, (4, 8)), profile, SGD_CONTEXT_STEPS)


def _contexts(profile: Profile, published: Sequence[int]) -> Sequence[int]:
    return (1, 2) if profile == "quick" else published


FIGURES: dict[str, CurveFigure | MapFigure] = {
    "fig1": CurveFigure("Figure 1: the minimal model from a small start", _fig1, values.FIG1, values.FIG1),
    "fig1-maps": MapFigure("Figure 1: attention maps of the minimal model", _fig1, values.FIG1, ideal=Markov()),
    "fig2": MapFigure("Figure 2: attention maps of the full model", _full, values.FIG2, more=_mass),
    "fig3": CurveFigure("Figure 3 left: the full model", _full, values.FIG3_LEFT, values.FIG2),
    "fig3-right": CurveFigure(
        "Figure 3 right: the full model beside models of restricted context",
        _every_update,
        values.FIG3_RIGHT,
        values.FIG2,
        "contexts",
    ),
    "fig3-every": CurveFigure(
        "incremental-fig3-every: the full model with dropout in every update",
        _every_update,
        values.FIG3_EVERY,
        values.FIG2,
    ),
    "fig3-right-once": CurveFigure(
        "incremental-fig3-right-once: beside models of restricted context, with dropout in one update of three",
        _full_contexts,
        values.FIG3_RIGHT_ONCE,
        values.FIG2,
        "contexts",
    ),
    "fig6": MapFigure("Figure 6: new data at every step, attention maps", _online, values.FIG6),
    "fig7": CurveFigure("Figure 7: new data at every step", _online, values.FIG7, values.FIG6),
    "fig8": MapFigure("Figure 8: the farthest group matters most, attention maps", _farthest, values.FIG8),
    "fig9": CurveFigure("Figure 9: the farthest group matters most", _farthest, values.FIG9, values.FIG8),
    "fig9-m": CurveFigure(
        "incremental-fig9-m: the farthest group matters most, m = 2.9", _farthest_m, values.FIG9_M, values.FIG8
    ),
    "fig11": CurveFigure("Figure 11: minimal model, two layers", _two_layers, values.FIG11),
    "fig12": CurveFigure("Figure 12: full model, two layers", _two_layers_full, values.FIG12),
    "fig12-once": CurveFigure(
        "incremental-fig12-once: full model, two layers, dropout in one update of three",
        _two_layers_full_once,
        values.FIG12_ONCE,
    ),
    "fig13": CurveFigure(
        "Figure 13: lags of a group weigh 0.7 and 0.3", _uneven, values.FIG13, values.FIG14, "contexts"
    ),
    "fig14": MapFigure("Figure 14: lags of a group weigh 0.7 and 0.3, attention maps", _uneven, values.FIG14),
    "fig15": CurveFigure("Figure 15: overlapping groups, four heads", _overlap(4), values.FIG15, predictors="contexts"),
    "fig16": MapFigure(
        "Figure 16: overlapping groups, three heads", _overlap(3), Published(), True, more=_lags(values.FIG16_LAGS)
    ),
    "fig17": MapFigure(
        "Figure 17: overlapping groups, four heads", _overlap(4), Published(), True, more=_lags(values.FIG17_LAGS)
    ),
    "fig18": CurveFigure("Figure 18: full model by SGD", _sgd, values.FIG18, values.FIG19, "contexts"),
    "fig19": MapFigure("Figure 19: full model by SGD, attention maps", _sgd, values.FIG19),
}
