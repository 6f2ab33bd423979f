"""Figure 5: with less data the minimal model stops lower on the ladder, and early stopping picks a simpler predictor.

Against the size of the training set: the best validation loss and that of the final model, the step at which it is
best, and, there, KL to models of restricted context and to the truncated truths.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws.stages import early_stop
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._ladder import compared, minimal_runs, rungs_of
from unstuck.papers.lab import TieredRun, curves
from unstuck.papers.style import BLUE, ORANGE, panels, shades

SIZES = [100, 400, 2000, 3000, 6000, 9000]


def runs(profile: Profile) -> list[TieredRun]:
    sizes, seeds = ([50, 200, 2000], [0]) if profile == "quick" else (SIZES, [0, 1])
    out = []
    for seed in seeds:
        mine = minimal_runs(profile, 1, seeds=[seed], task__sequences=sizes)
        out += compared(mine, contexts(profile), like=mine[-1])
    return out


def contexts(profile: Profile) -> list[int]:
    return [1, 2, 3] if profile == "quick" else [2, 4, 6]


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    table = curves([r for r in runs(profile) if r.spec.train.compare], store)
    if table.empty:
        return table
    names = {f"ref_{i + 1}": f"context_{c}" for i, c in enumerate(contexts(profile))}
    ladder = [c for c in table if c.startswith("kl_")]
    columns = ["run_id", "sequences", "seed", "step", "train_loss", "test_loss", "excess_loss", "specialisation"]
    return table[[*columns, *ladder, *names]].rename(columns=names)


def _stops(table: pd.DataFrame) -> pd.DataFrame:
    """For each run: where it was best, what the end cost, and how far it was from each restricted model there."""
    rows = []
    for (_, sequences, seed), curve in table.groupby(["run_id", "sequences", "seed"]):
        stop = early_stop(curve[["step", "test_loss", *rungs_of(curve)]])
        at = curve[curve["step"] == stop.step].iloc[0]
        truth = (curve["test_loss"] - curve["excess_loss"]).iloc[0]
        rows.append(
            {
                **{"sequences": sequences, "seed": seed, "step": stop.step, "gain": stop.gain},
                **{"rung": stop.rung, "nearest": stop.kl},
                **{"best": stop.loss - truth, "final": stop.final_loss - truth},
                **{c: at[c] for c in curve if c.startswith("context_")},
                **{c: at[c] for c in rungs_of(curve)},
            }
        )
    return pd.DataFrame(rows).sort_values("sequences")


def draw(table: pd.DataFrame) -> Figure:
    picture, (first, second, third, fourth) = panels(4, width=3.4)
    stops = _stops(table)
    means = stops.groupby("sequences").mean()
    for column, colour, label in (("final", ORANGE, "final model"), ("best", BLUE, "best step")):
        first.plot(stops["sequences"], stops[column], "o", ms=4, color=colour)
        first.plot(means.index, means[column], "-", color=colour, label=label)
    first.set(yscale="log", ylabel="validation loss above the truth")
    first.legend(loc="upper right")
    second.plot(stops["sequences"], stops["step"], "o", ms=4, color=BLUE)
    second.plot(means.index, means["step"], "-", color=BLUE)
    second.set(yscale="log", ylabel="step with the best validation loss")
    for ax, prefix, name, ylabel in (
        (third, "context_", "context {}", "KL to the restricted model, best step"),
        (fourth, "kl_", "$A^*_{{1:{}}}$", "KL to the truncated truth, best step"),
    ):
        columns = [c for c in stops if c.startswith(prefix)]
        for column, colour in shades(columns).items():
            label = name.format(column.removeprefix(prefix))
            ax.plot(means.index, means[column], "o-", ms=4, color=colour, label=label)
        ax.set(yscale="log", ylabel=ylabel)
        ax.legend(loc="lower left")
    for ax in (first, second, third, fourth):
        ax.set(xscale="log", xlabel="training sequences")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    stops = _stops(table)
    by_size = stops.groupby("sequences")
    rungs, kl = by_size["rung"].agg(["min", "max"]), by_size["nearest"].mean()
    shown = {n: f"{a}" if a == b else f"{a} to {b}" for n, (a, b) in rungs.iterrows()}
    text = ", ".join(f"{n}: {rung} (KL {kl[n]:.2f})" for n, rung in shown.items())
    rises = bool((np.diff(rungs, axis=0) >= 0).all() and (rungs.iloc[0] < rungs.iloc[-1]).all())
    claims = [
        Claim(
            "rung at the best step, by sequences",
            text,
            "smaller data stops lower",
            rises if len(rungs) > 1 else None,
            "0: KL to none has fallen by half",
        )
    ]
    steps = ", ".join(f"{n}: {step:.0f}" for n, step in stops.groupby("sequences")["step"].mean().items())
    claims.append(Claim("best step, by sequences", steps, None, None))
    for size in (400, 9000):
        mine = stops[stops["sequences"] == size]
        if len(mine):
            ours = f"{mine['gain'].mean():.3f} ({mine['gain'].min():.3f} to {mine['gain'].max():.3f})"
            claims.append(
                Claim(
                    f"gain of early stopping over the final model, {size} sequences",
                    ours,
                    "early stopping picks a better, simpler predictor" if size == 400 else None,
                    bool(mine["gain"].min() > 0.01 and mine["rung"].max() < stops["rung"].max())
                    if size == 400
                    else None,
                )
            )
    return claims
