"""What the recall figures share: grids by profile, laws at two thresholds, curves of runs with repetition."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unstuck.laws import PowerLaw
from unstuck.laws.tables import at_threshold
from unstuck.papers.emergence._regression import fit_or_none, law_claims
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, curves, finished, grid
from unstuck.papers.style import legend_outside, panels, plateau_axes, shades

FORMULA, NAMES = "tokens + pairs", {"tokens": r"\mathrm{tokens}", "pairs": r"\mathrm{pairs}"}
PAPER = {"tokens": 0.79, "pairs": 2.25}
RATES = [1e-4, 3e-5, 1e-5]
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
    """Figure 4 right: plateau against vocabulary and pairs, no repetition, one learning rate."""
    if profile == "quick":
        fixed = {**SMALL, "train.thresholds": UNTIL_50}
        return grid("recall", 1, [0], fixed, task__tokens=[12, 16], task__pairs=[3, 4])
    tokens, pairs, seeds, steps = {
        "cpu": ([32, 64, 128], [4, 6, 8, 12], [0, 1], 30_000),
        "paper": ([64, 128, 256], [8, 16, 32, 48], [0, 1, 2], 200_000),
    }[profile]
    fixed = {"train.thresholds": UNTIL_50, "train.max_steps": steps}
    return grid("recall", 1, seeds, fixed, task__tokens=tokens, task__pairs=pairs)


def repetition_runs(profile: Profile, key: str) -> list[TieredRun]:
    """Figures 5 and 16: several B, or several p, for a fixed number of steps."""
    tier, seeds, sizes = {
        "quick": (2, [0], {**SMALL, "task.tokens": 16, "task.pairs": 4, "train.max_steps": 500}),
        "cpu": (2, [0, 1], {"task.tokens": 64, "task.pairs": 8, "train.max_steps": 15_000}),
        "paper": (2, [0, 1, 2], {"task.tokens": 256, "task.pairs": 32, "train.max_steps": 300_000}),
    }[profile]
    copies: dict[Profile, list[float]] = {"quick": [1, 2], "cpu": [1, 1.5, 2, 4], "paper": [1, 1.5, 2, 4, 8]}
    values = copies[profile] if key == "B" else [0.0, 0.5] if profile == "quick" else [0.0, 0.1, 0.5, 0.9]
    fixed = {**sizes, "train.thresholds": UNTIL_90, "train.at_least": sizes["train.max_steps"]}
    return grid("recall", tier, seeds, fixed, **{f"task__{key}": values})


def repetition_data(runs: Sequence[TieredRun], store: Path) -> pd.DataFrame:
    """Accuracy over training on clean and on training-like data, with each run's crossings on clean data."""
    table = curves(runs, store)
    if table.empty:
        return table
    done = finished(runs, store)
    crossings = [c for c in done if c.startswith("crossing_")]
    columns = ["run_id", "tokens", "pairs", "B", "p", "seed", "step", "evaluated", "clean_accuracy", "like_accuracy"]
    return table[columns].merge(done[["run_id", *crossings]], on="run_id")


def plot_accuracy(ax: Axes, table: pd.DataFrame, key: str, column: str) -> None:
    """A line for each run, coloured by its repetition; dotted a guess among the values of a clean context."""
    values = sorted(table[key].unique())
    for value, colour in shades(values).items():
        for i, (_, run) in enumerate(table[table[key] == value].groupby("run_id")):
            label = (value if isinstance(value, str) else f"{key} = {value:g}") if i == 0 else None
            ax.plot(run["step"], run[column], color=colour, lw=1.1, alpha=0.85, label=label)
    ax.axhline(1 / table["pairs"].iloc[0], color="#999999", lw=0.8, ls=":")
    ax.set(xlabel="step", ylabel="accuracy", ylim=(0, 1.02))


def repetition_figure(table: pd.DataFrame, key: str) -> Figure:
    """Figure 5: accuracy on clean data."""
    picture, (ax,) = panels(width=5.6, height=3.7)
    plot_accuracy(ax, table, key, "clean_accuracy")
    ax.set_ylabel("accuracy on clean data")
    ax.set_title(f"recall, {table['tokens'].iloc[0]} tokens, {table['pairs'].iloc[0]} pairs")
    legend_outside(picture, ax)
    return picture


def plot_plateaus(ax: Axes, table: pd.DataFrame, law: PowerLaw | None) -> None:
    """Every run a dot over the number of pairs, coloured by vocabulary; censored ones as triangles at their end."""
    for tokens, colour in shades(sorted(table["tokens"].unique())).items():
        rows = table[table["tokens"] == tokens].sort_values("pairs")
        emerged, censored = rows[rows["status"] == "emerged"], rows[rows["status"] == "censored"]
        ax.plot(emerged["pairs"], emerged["plateau_steps"], "o", ms=4, color=colour, label=f"{tokens} tokens")
        ax.plot(censored["pairs"], censored["steps"], "^", ms=5, color=colour, mfc="none")
        if law is not None:
            line = rows.drop_duplicates("pairs")
            ax.plot(line["pairs"], law.predict(line), "-", lw=1.2, color=colour)
    plateau_axes(ax, "pairs in the context", sorted(table["pairs"].unique()))


def crossing(table: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """The table with the plateaus of one threshold; what is there before training is no plateau, and left out."""
    if f"crossing_{threshold:g}" not in table:
        table = table.assign(**{f"crossing_{threshold:g}": np.nan})
    table = at_threshold(table, threshold)
    return table[~(table["plateau_steps"] <= 0)]


def both_laws(table: pd.DataFrame) -> list[Claim]:
    """The laws at 50% and at 5% beside the paper's, which is at 5%: only that one can agree with it."""
    at_50 = law_claims(fit_or_none(crossing(table, 0.5), FORMULA), PAPER, where=", to 50%", r2=0.982)
    at_5 = law_claims(fit_or_none(crossing(table, 0.05), FORMULA), PAPER, where=", to 5%", r2=0.982)
    return [*(replace(claim, agrees=None) for claim in at_50), *at_5]


# -- repetition


def first_step(run: pd.DataFrame, column: str, level: float) -> float:
    """The first step at which an accuracy, smoothed over three rows, is at a level; infinite if never."""
    above = np.flatnonzero(run[column].rolling(3, min_periods=1, center=True).mean() >= level)
    return float(run["step"].iloc[above[0]]) if len(above) else np.inf


def step_list(steps: Sequence[float], last: float) -> str:
    """Steps of several seeds, a run that never got there as `> its last step`.

    Examples:
        >>> step_list([1200, float("inf")], 15000)
        '1200, >15000'
    """
    return ", ".join(f"{step:.0f}" if np.isfinite(step) else f">{last:.0f}" for step in sorted(steps))


def repetition_claims(table: pd.DataFrame, key: str, none: float, paper: str) -> list[Claim]:
    """How much faster the best repetition is on clean data; which ones overfit; whose accuracy comes back late."""
    runs = table.groupby(["run_id", key], as_index=False).apply(_summary, include_groups=False)
    last = float(table["step"].max())
    steps = {float(value): sorted(rows["half"]) for value, rows in runs.groupby(key)}
    text = "; ".join(f"{key} = {value:g}: {step_list(found, last)}" for value, found in steps.items())
    claims = [Claim("steps to 50% on clean data, each seed", text, None, None)]
    if none in steps and len(steps) > 1:
        claims.append(_speed_up({v: s for v, s in steps.items() if v != none}, steps[none], last, key, paper))
    claims.append(_seeds_that(runs, key, "overfits", "too much repetition overfits"))
    base = steps.get(none, [np.inf])
    runs["late"] = np.isfinite(runs["half"]) & (runs["half"] > max(base)) & (runs["like_90"] < min(base))
    claims.append(_seeds_that(runs[runs[key] != none], key, "late", "later groks"))
    return claims


def _summary(run: pd.DataFrame) -> pd.Series:
    """Of one run: steps to 50% on clean and to 90% on training-like data; and whether, in its last tenth, clean
    accuracy is 0.3 or more below training-like accuracy."""
    half = run["crossing_0.5"].iloc[0] if "crossing_0.5" in run else np.nan
    end = run[run["step"] >= 0.9 * run["step"].max()]
    gap = float((end["like_accuracy"] - end["clean_accuracy"]).mean())
    found = {
        "half": np.inf if np.isnan(half) else half,
        "like_90": first_step(run, "like_accuracy", 0.9),
        "gap": gap,
        "overfits": gap >= 0.3,
    }
    return pd.Series(found)


def _speed_up(steps: dict[float, list[float]], none: list[float], last: float, key: str, paper: str) -> Claim:
    """Of the repetition whose slowest seed is fastest; a run that never got there counts as one of `last` steps, so
    what follows from it is a bound."""
    best = min(steps, key=lambda value: (max(steps[value]), min(steps[value])))
    ours, base = steps[best], [min(step, last) for step in none]
    if np.isinf(max(ours)):
        return Claim("speed-up of the best repetition over none", "none got to 50% with all seeds", paper, False)
    low, high = min(base) / max(ours), max(base) / min(ours)
    mean = float(np.exp(np.mean(np.log(base)) - np.mean(np.log(ours))))
    more = "at least " if np.isinf(max(none)) else ""
    text = f"{more}{mean:.2f} times with {key} = {best:g} (seed against seed {low:.2f} to {high:.2f})"
    return Claim("speed-up of the best repetition over none", text, paper, True if low > 1 else None)


def _seeds_that(runs: pd.DataFrame, key: str, column: str, paper: str) -> Claim:
    what = {
        "overfits": "overfits: in its last tenth 0.3 or more below training-like accuracy",
        "late": "comes back late: 90% on training-like data before, 50% on clean data after the runs without",
    }[column]
    found = {v: (int(r[column].sum()), len(r), r["gap"].mean()) for v, r in runs.groupby(key)}
    more = {v: f", gap {gap:.2f}" if column == "overfits" else "" for v, (_, _, gap) in found.items()}
    hit = [f"{key} = {v:g} ({k} of {n} seeds{more[v]})" for v, (k, n, _) in found.items() if k]
    return Claim(what, ", ".join(hit) or "none", paper, bool(hit))
