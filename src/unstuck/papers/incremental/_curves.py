"""Tables and pictures that paper 2's figures share: curves beside published values, and attention maps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment

from unstuck.columns import EXCESS_LOSS, SPECIALISATION, STEP, TEST_LOSS, TRAIN_LOSS, context_columns, predictor
from unstuck.curve import Curve
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, curves
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.probes.ladder import by_layer
from unstuck.probes.maps import draw_heads
from unstuck.store.store import Store
from unstuck.tasks.markov import Markov

from ._published import Published, updates
from ._runs import main_runs

IDEAL = 10**9  # stands for the step of the ideal map, which is none
SECOND: dict[str, Any] = {"lw": 1.0, "alpha": 0.75}  # the second training seed
OTHER: dict[str, Any] = {"lw": 0.8, "alpha": 0.35}  # another teacher


def curve_table(done: Finished) -> pd.DataFrame:
    """The runs' curves, models of restricted context left out: losses, KL to each truth and to each of those models
    (by its context), specialisation, attention on each group, alignment."""
    parts = []
    for run in main_runs(done.runs):
        curve = curves([run], done.store)
        if len(curve):
            names = context_columns(_context_of(done.runs, run_id) for run_id in run.spec.train.compare)
            parts.append(curve.rename(columns=names))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    sizes = ["teacher", "m", "d", "sequences", "importance", "query", "heads", "layers", "seed"]
    columns = ["run_id", *(c for c in sizes if c in table), STEP, TRAIN_LOSS, TEST_LOSS, EXCESS_LOSS]
    return table[[*columns, SPECIALISATION, *Curve.of(table).ladder_names]]


def _context_of(runs: Sequence[TieredRun], run_id: str) -> int:
    return next(int(run.spec.model.context) for run in runs if run.spec.run_id == run_id)


def truths_of(table: pd.DataFrame) -> list[str]:
    """The columns of the KL to each truth, the simplest first."""
    return Curve.of(table).rung_names


def predictors_of(table: pd.DataFrame) -> list[str]:
    """The columns of the KL to each model of restricted context, the shortest first, and to the truth."""
    curve = Curve.of(table)
    return [*curve.context_names, curve.rung_names[-1]]


def plot_kl(ax: Axes, table: pd.DataFrame, columns: Sequence[str], published: Published) -> None:
    """KL to each predictor over training; the published values as open circles, their stages as dotted lines."""
    colours = shades(list(columns))
    for i, (_, curve) in enumerate(table.groupby("run_id", sort=False)):
        style = _style(i, curve)
        for column, colour in colours.items():
            label = _label(column) if i == 0 else None
            ax.plot(curve["step"], curve[column], color=colour, label=label, **style)
    if table.get("teacher", pd.Series(["random"])).iloc[0] != "published":  # another chain: nothing to compare with
        published = Published()
    for j, colour in enumerate(colours.values()):
        points = {updates(step): values[j] for step, values in published.kl.items()}
        ax.plot(list(points), list(points.values()), "o", mfc="white", mec=colour, ms=5, zorder=5)
    for step in published.stages:
        ax.axvline(updates(step), color="#999999", lw=0.9, ls=":")
    if published.kl:
        ax.plot([], [], "o", mfc="white", mec="#444444", ms=5, label="published")
    ax.set(xlabel="step", ylabel="KL to the predictor (nats)", yscale="log")


def _label(column: str) -> str:
    kind, number = predictor(column)
    return f"c = {number}" if kind == "context" else f"$A^*_{{1:{number}}}$"


def _style(i: int, curve: pd.DataFrame) -> dict[str, Any]:
    """The first run drawn in full, its other seeds thin, other teachers faint."""
    if i == 0:
        return {"lw": 1.7}
    return SECOND if curve.get("teacher", pd.Series(["random"])).iloc[0] == "published" else OTHER


def draw_curves(
    table: pd.DataFrame, columns: Sequence[str], title: str, published: Published, maps: Published
) -> Figure:
    """Loss, KL to each predictor, and the specialisation index; published values as open circles."""
    picture, (left, middle, right) = panels(3, width=3.9)
    for i, (_, curve) in enumerate(table.groupby("run_id", sort=False)):
        style = _style(i, curve)
        left.plot(curve["step"], curve[TEST_LOSS], color="#222222", **style)
        truth = float((curve[TEST_LOSS] - curve[EXCESS_LOSS]).iloc[-1])
        left.axhline(truth, color="#999999", lw=0.8, ls="--")
        layers = by_layer(curve)
        for layer, line in zip(layers, ("-", "--", ":", "-."), strict=False):
            label = f"layer {layer + 1}" if len(layers) > 1 and i == 0 else None
            right.plot(curve["step"], layers[layer], line, color="#222222", label=label, **style)
    judged = "teacher" in table and (table["teacher"] == "published").any()
    for ax, values in ((left, published.loss), (right, maps.specialisation)) if judged else ():
        ax.plot([updates(s) for s in values], list(values.values()), "o", mfc="white", mec="#444444", ms=5, zorder=5)
    plot_kl(middle, table, columns, published)
    left.set(xlabel="step", ylabel="validation loss (dashed: the teacher's)", title=title)
    if judged and published.stages:
        middle.set_title("dotted: where published stages end")
    right.set(xlabel="step", ylabel="specialisation index", ylim=(-0.02, 1))
    if right.get_legend_handles_labels()[0]:
        right.legend(loc="upper left")
    legend_outside(picture, middle)
    return picture


# -- attention maps


def map_table(done: Finished) -> pd.DataFrame:
    """The mean attention of the first run at the steps at which it was kept, layer 1; with the specialisation index of
    every run with its teacher, `index_0` of the first seed and so on."""
    first, *others = main_runs(done.runs)
    mine = [first, *(run for run in others if run.spec.task.teacher == first.spec.task.teacher)]
    found = [curves([run], done.store) for run in mine]
    maps = _maps(first, done, first.spec.train.maps) if len(found[0]) else None
    if maps is None:
        return pd.DataFrame()
    index = {
        f"index_{i}": np.interp(maps["step"], curve["step"], curve[SPECIALISATION], right=np.nan)
        for i, curve in enumerate(found)
        if len(curve)
    }
    return maps.assign(teacher=first.spec.task.teacher, **index)


def _maps(run: TieredRun, done: Finished, steps: Sequence[int]) -> pd.DataFrame | None:
    """The mean attention of a run's layer 1 at some of the steps at which it was kept; None where it is not stored."""
    maps = Store(done.store).run(run.spec.run_id).maps()
    if maps is None:
        return None
    kept = maps[(maps["weight"] > 1e-4) & (maps["layer"] == 0) & maps["step"].isin(steps)]
    return kept.drop(columns=["token", "relevant"])


def seed_map_table(done: Finished) -> pd.DataFrame:
    """`map_table`, with the last map of every other training seed with the same teacher below it."""
    first, *others = main_runs(done.runs)
    table = map_table(done)
    if table.empty:
        return table
    parts = [table.assign(seed=first.spec.seed)]
    for run in others:
        if run.spec.task.teacher == first.spec.task.teacher:
            maps = _maps(run, done, run.spec.train.maps[-1:]) if len(curves([run], done.store)) else None
            parts += [] if maps is None else [maps.assign(teacher=run.spec.task.teacher, seed=run.spec.seed)]
    return pd.concat(parts, ignore_index=True)


def first_seed(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table of maps that are of the first training seed."""
    return table[table["seed"] == table["seed"].iloc[0]] if "seed" in table else table


def whole_maps(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the pairs of positions that were left out for their small weight."""
    keys = ["step", "layer", "head", "row", "column"]
    size = int(max(table["row"].max(), table["column"].max())) + 1
    values = [*(sorted(table[k].unique()) for k in keys[:3]), range(size), range(size)]
    full = pd.MultiIndex.from_product(values, names=keys)
    return table.set_index(keys)["weight"].reindex(full, fill_value=0.0).reset_index()


def draw_maps(table: pd.DataFrame, ideal: Markov | None = None) -> Figure:
    """All heads in one map a step, one colour a head; last, if asked for, a head for each group of a task, evenly on
    its lags, each group in the colour of the head that attends it most at the end."""
    whole, steps = whole_maps(table), sorted(table["step"].unique())
    if ideal is None:
        return draw_heads(whole, steps, 0)
    weights = lag_weights(table, steps[-1]).reindex(columns=range(1, ideal.T + 1), fill_value=0.0).to_numpy()
    on_group = np.array([[weights[h, np.array(ideal.lags(k)) - 1].sum() for k in range(3)] for h in range(3)])
    heads, groups = linear_sum_assignment(-on_group)
    rows = [
        {"step": IDEAL, "layer": 0, "head": h, "row": row, "column": row + 1 - lag, "weight": 1 / len(ideal.lags(k))}
        for h, k in zip(heads, groups, strict=True)
        for row in range(ideal.context - 1, ideal.T)
        for lag in ideal.lags(k)
    ]
    both = whole_maps(pd.concat([whole, pd.DataFrame(rows)]))
    return draw_heads(both, [*steps, IDEAL], 0, {IDEAL: "ideal: a head a group"})


def draw_maps_by_head(table: pd.DataFrame) -> Figure:
    """A row of maps a head, a column a step."""
    whole = whole_maps(table)
    steps, heads = sorted(whole["step"].unique())[-3:], sorted(whole["head"].unique())
    picture, axes = panels(len(steps), len(heads), width=2.5, height=2.3)
    for i, head in enumerate(heads):
        for j, step in enumerate(steps):
            ax = axes[i * len(steps) + j]
            part = whole[(whole["head"] == head) & (whole["step"] == step)]
            ax.imshow(part.pivot_table("weight", "row", "column").to_numpy(), vmin=0, vmax=0.6, cmap="Greys")
            ax.set_title(f"head {head + 1}, step {step:,}", fontsize=8.5)
            ax.tick_params(labelsize=7)
    return picture


def lag_weights(table: pd.DataFrame, step: int) -> pd.DataFrame:
    """Each head's attention a lag, (heads, lags), mean over the scored positions; the lag of a position's own token
    is 1, since it predicts the next."""
    part = whole_maps(table[table["step"] == step])
    part = part.assign(lag=part["row"] + 1 - part["column"])
    scored = part.groupby("row")["weight"].transform("sum") > 0  # rows that are not scored are left at zero
    return part[scored & (part["lag"] > 0)].pivot_table("weight", "head", "lag", aggfunc="mean")
