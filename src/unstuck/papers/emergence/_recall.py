"""What the recall figures share: grids by profile, laws at two thresholds, curves of runs with repetition."""

from collections.abc import Sequence
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
    fixed = {**sizes, "train.thresholds": UNTIL_90, "train.after": sizes["train.max_steps"]}
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
    """A line for each run, coloured by its repetition."""
    values = sorted(table[key].unique())
    for value, colour in shades(values).items():
        for i, (_, run) in enumerate(table[table[key] == value].groupby("run_id")):
            label = f"{key} = {value:g}" if i == 0 else None
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
    """The laws at 50% and at 5% beside the paper's, which is at 5%."""
    at_50 = law_claims(fit_or_none(crossing(table, 0.5), FORMULA), PAPER, where=", to 50%", r2=0.982)
    at_5 = law_claims(fit_or_none(crossing(table, 0.05), FORMULA), PAPER, where=", to 5%", r2=0.982)
    return [*at_50, *at_5]


def repetition_claims(table: pd.DataFrame, key: str, none: float, paper: str) -> list[Claim]:
    """How much faster the best repetition is on clean data; which ones overfit; whose accuracy comes back late."""
    runs = table.groupby(["run_id", key], as_index=False).apply(_summary, include_groups=False)
    steps = runs.groupby(key)["half"].agg(["mean", "min", "max", "count"])
    text = ", ".join(
        f"{key} = {value:g}: {row['mean']:.0f} ({row['min']:.0f} to {row['max']:.0f})"
        for value, row in steps.iterrows()
        if row["count"]
    )
    claims = [Claim("steps to 50% on clean data, mean (range over seeds)", text or "none yet", None, None)]
    done = steps.loc[steps["count"] == runs.groupby(key)["half"].size(), "mean"]  # only where all seeds got there
    if none in done.index and len(done) > 1:
        gains = done[none] / done.drop(none)
        best = gains.idxmax()
        ours = f"{gains[best]:.2f} times, {key} = {best:g}"
        claims.append(Claim("speed-up of the best repetition over none", ours, paper, bool(gains[best] > 1)))
    for what, column, least in (
        ("overfits (clean accuracy 0.3 or more below training-like accuracy)", "gap", 0.3),
        ("comes back late (clean accuracy up by 0.2 after that)", "comeback", 0.2),
    ):
        means = runs.groupby(key)[column].agg(["mean", "min", "max"])
        hit = [f"{key} = {v:g} ({r['min']:.2f} to {r['max']:.2f})" for v, r in means.iterrows() if r["mean"] >= least]
        expected = {"gap": "too much repetition overfits", "comeback": "later groks"}[column]
        claims.append(Claim(what, ", ".join(hit) or "none", expected, bool(hit)))
    return claims


def _summary(run: pd.DataFrame) -> pd.Series:
    """Of one run: step to 50% on clean data, largest gap between the two accuracies, rise of the clean one after it."""
    smooth = run[["clean_accuracy", "like_accuracy"]].rolling(5, min_periods=1, center=True).mean()
    gap = (smooth["like_accuracy"] - smooth["clean_accuracy"]).to_numpy()
    at = int(gap.argmax())
    clean = smooth["clean_accuracy"].to_numpy()
    comeback = clean[at:].max() - clean[at] if gap[at] >= 0.3 else 0.0
    half = run["crossing_0.5"].iloc[0] if "crossing_0.5" in run else np.nan
    return pd.Series({"half": half, "gap": gap[at], "comeback": comeback})
