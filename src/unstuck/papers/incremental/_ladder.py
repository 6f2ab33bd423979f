"""What the figures of paper 2 share: runs by profile, curves with stages shaded, maps."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unstuck.laws.stages import Stages, find_stages
from unstuck.observe.ladder import by_layer
from unstuck.observe.maps import draw_heads
from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, curves, grid
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.runs.store import Store

FAINT: dict[str, Any] = {"alpha": 0.4, "lw": 1.0}
STEPS = 800
MAPS = [0, 60, 120, 200, 300, 400, 600, 800]
#: A chain on which the minimal model climbs the whole ladder in seconds, for the quick profile.
QUICK: dict[str, Any] = {
    "task.d": 16,
    "task.span": 1,
    "task.tau": 0.3,
    "task.sequences": 2000,
    "train.batch": 1000,
    "optim.lr": 0.04,
    "train.max_steps": 300,
}

FRESH = {"task.sequences": 0, "train.batch": 512}
TWO_LAYERS = {"model.layers": 2, "task.sequences": 27_000, "task.span": 4, "task.m": 1.8, "optim.lr": 0.04}
UNEVEN = {"task.weights": [0.7, 0.3]}
OVERLAP = {"task.span": 4, "task.stride": 2}
QUICK_OVERLAP = {"task.span": 2, "task.stride": 1}
SGD = {"optim.name": "sgd", "optim.lr": 0.2, "optim.momentum": 0.9, "task.m": 2.0, "train.max_steps": 6000}
SGD |= {"train.maps": [0, 300, 600, 1000, 1500, 2000, 3000, 4500, 6000]}


def minimal_runs(
    profile: Profile,
    tier: int,
    seeds: Sequence[int] = (0,),
    changes: Mapping[str, Any] | None = None,
    quick: Mapping[str, Any] | None = None,
    **lists: Sequence[Any],
) -> list[TieredRun]:
    """Runs of the minimal model with `changes`; in the quick profile on a small chain, with `quick` instead."""
    if profile == "quick":
        fixed = {**QUICK, "train.maps": [0, 60, 150, 300], **((changes if quick is None else quick) or {})}
        return grid("markov-minimal", tier, [0], fixed, **lists)
    fixed = {"train.max_steps": STEPS, "train.maps": MAPS, **(changes or {})}
    return grid("markov-minimal", tier, seeds, fixed, **lists)


def full_runs(profile: Profile, changes: Mapping[str, Any] | None = None, **lists: Sequence[Any]) -> list[TieredRun]:
    """Runs of the full Transformer with `changes`; in the quick profile a narrow one on a small chain."""
    if profile == "quick":
        small = {"model.width": 48, "model.mlp": 32, "optim.lr": 0.01, "train.max_steps": 200}
        fixed = {**QUICK, **small, **(changes or {}), "train.maps": [0, 60, 200]}
        return grid("markov-full", 3, [0], {**fixed, "train.max_steps": 200}, **lists)
    steps = {"cpu": 1000, "paper": 2000}[profile]  # the paper's maps end at 1,000
    fixed = {"train.max_steps": steps, "train.maps": [0, 60, 300, 1000], **(changes or {})}
    return grid("markov-full", 3 if changes or lists else 2, [0], fixed, **lists)


def compared(runs: Sequence[TieredRun], contexts: Sequence[int], like: TieredRun | None = None) -> list[TieredRun]:
    """The runs, each compared with models of restricted context, which are trained first: the same as `like`, the last
    of the runs unless told, but for what they see."""
    like = like or runs[-1]
    restricted = []
    for context in contexts:
        model, train = replace(like.spec.model, context=context), replace(like.spec.train, predictions=True, maps=())
        restricted.append(replace(like.spec, model=model, train=train))
    ids = tuple(spec.run_id for spec in restricted)
    specs = [*restricted, *(replace(r.spec, train=replace(r.spec.train, compare=ids)) for r in runs)]
    return [TieredRun(like.tier, spec, race=f"compared {ids[0]}") for spec in specs]


def plot_passing(ax: Axes, table: pd.DataFrame) -> None:
    """KL from every restricted model to the run, over its training."""
    names = [c for c in table if c.startswith("context_")]
    for name, colour in shades(names).items():
        ax.plot(table["step"], table[name], color=colour, label=f"context {name.removeprefix('context_')}")
    ax.set(xlabel="step", ylabel="KL to the restricted model", yscale="log")


def ladder_data(runs: Sequence[TieredRun], store: Path) -> pd.DataFrame:
    """The curves: losses, KL to each rung, specialisation, attention on each group, alignment."""
    table = curves(runs, store)
    if table.empty:
        return table
    ladder = [c for c in table if re.match(r"kl_|group\d|align_", c)]
    sizes = ["d", "m", "sequences", "importance", "query", "heads", "seed"]
    columns = ["run_id", *(c for c in sizes if c in table), "step", "train_loss", "test_loss", "excess_loss"]
    return table[[*columns, "specialisation", *ladder]]


def maps_data(run: TieredRun, store: Path) -> pd.DataFrame:
    """The mean attention of a run at the steps at which it was kept."""
    directory = Store(store).run(run.spec.run_id)
    maps = directory.maps() if directory.status() is not None and curves([run], store).size else None
    if maps is None:
        return pd.DataFrame()
    return maps[maps["weight"] > 1e-4].drop(columns=["token", "relevant"]).reset_index(drop=True)


def rungs_of(curve: pd.DataFrame) -> list[str]:
    """The columns of the KL to each rung that a table has values in."""
    return [c for c in curve if c.startswith("kl_") and curve[c].notna().all()]


def stages_of(curve: pd.DataFrame) -> Stages:
    return find_stages(curve[["step", *rungs_of(curve), "specialisation"]].reset_index(drop=True))


def plot_ladder(ax: Axes, curve: pd.DataFrame, *, faint: bool = False) -> None:
    """KL to every rung, with the stages shaded in the colour of the rung the run is on; or thin lines alone."""
    names = rungs_of(curve)
    colours = shades(names)
    for i, (name, colour) in enumerate(colours.items()):
        label = None if faint else f"$A^*_{{1:{i + 1}}}$"
        ax.plot(curve["step"], curve[name], color=colour, label=label, **(FAINT if faint else {}))
    if faint:
        return
    for name, rung in zip(names, stages_of(curve).rungs, strict=True):
        if rung.reached is not None:
            end = curve["step"].max() if rung.left is None else rung.left
            ax.axvspan(rung.reached, end, color=colours[name], alpha=0.12, lw=0)
    ax.set(xlabel="step", ylabel="KL to the truncated truth", yscale="log")


def ladder_figure(table: pd.DataFrame, title: str, by: str = "seed") -> Figure:
    """Loss, ladder and specialisation of the first run, the others faintly; runs differ in `by`."""
    picture, (left, middle, right) = panels(3, width=3.9)
    many = len(table.drop_duplicates("run_id")) > 1
    for i, (_, curve) in enumerate(table.groupby("run_id", sort=False)):
        style: dict[str, Any] = FAINT if i else {"lw": 1.6}
        name = f"{by} {curve[by].iloc[0]:g}" if many else None
        left.plot(curve["step"], curve["excess_loss"], color="#222222", label=name, **style)
        layers = by_layer(curve)
        for layer, (index, line) in enumerate(zip(layers.values(), ("-", "--", ":", "-."), strict=False)):
            label = f"layer {layer + 1}" if len(layers) > 1 and i == 0 else None
            right.plot(curve["step"], index, line, color="#222222", label=label, **style)
        plot_ladder(middle, curve, faint=i > 0)
    left.set(xlabel="step", ylabel="loss above that of the truth", yscale="log", title=title)
    if many:
        left.legend(loc="upper right")
    middle.set_title("shaded: on that rung")
    right.set(xlabel="step", ylabel="specialisation index", ylim=(-0.02, 1))
    if right.get_legend_handles_labels()[0]:
        right.legend(loc="upper left")
    legend_outside(picture, middle)
    return picture


def maps_figure(table: pd.DataFrame, layer: int = 0) -> Figure:
    """The heads' attention at the start, soon after, half-way and at the end of the steps that were kept."""
    kept = sorted(table["step"].unique())
    chosen = sorted({kept[0], kept[min(1, len(kept) - 1)], kept[len(kept) // 2], kept[-1]})
    return draw_heads(whole_maps(table), chosen, layer)


def whole_maps(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the pairs of positions that were left out because nobody looks there."""
    keys = ["step", "layer", "head", "row", "column"]
    size = int(max(table["row"].max(), table["column"].max())) + 1
    values = [*(sorted(table[k].unique()) for k in keys[:3]), range(size), range(size)]
    full = pd.MultiIndex.from_product(values, names=keys)
    return table.set_index(keys)["weight"].reindex(full, fill_value=0.0).reset_index()
