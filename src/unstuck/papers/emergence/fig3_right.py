"""Figure 3 right: cross-sample repetition helps a Transformer more as d grows.

Section 2.4. Plateau (clean test loss 0.4) against d for several p. Both learning rates, 1e-4 and 3e-4, are run in full
for every p, d and seed; a size takes the rate with the shortest mean plateau over seeds (D.3). The text gives neither
T nor the values of d of this panel; the `paper` profile takes T = 256, the default of the two panels beside it.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, each_rate, grid, shortest_mean
from unstuck.papers.plateaus import plot_plateaus
from unstuck.papers.style import legend_outside, panels

RATES = [1e-4, 3e-4]
SEEDS, LARGEST_D = 3, 128  # that a table needs at least for a verdict
DECIDES = "runs at T = 256 with d = 64 and 128, p = 0, 0.2 and 0.4 and three or more seeds would tell"


def runs(profile: Profile) -> list[TieredRun]:
    T, d, p, seeds = {
        "quick": (16, [8, 12], [0.0, 0.2], [0]),
        "cpu": (64, [8, 16, 32], [0.0, 0.05, 0.1, 0.2, 0.4], [0, 1]),
        "paper": (256, [8, 16, 32, 64, 128], [0.0, 0.05, 0.1, 0.2, 0.4], [0, 1, 2, 3, 4]),
    }[profile]
    fixed = {"task.T": T, "train.thresholds": [0.4]}
    return each_rate(grid("regression", 1, seeds, fixed, task__p=p, task__d=d), RATES)


@once
def best_rates(table: pd.DataFrame) -> pd.DataFrame:
    return shortest_mean(table, ["p", "d"])


def draw(table: pd.DataFrame) -> Figure:
    best = best_rates(table)
    picture, (ax,) = panels(width=5.6, height=4.0)
    plot_plateaus(ax, best, "d", "p", y="plateau (steps to clean test loss 0.4)")
    for _, rows in best.groupby("p"):
        means = rows.groupby("d")["plateau_steps"].mean()
        ax.plot(means.index, means, "-", lw=1, color="#999999", zorder=0)
    ax.set_title(f"Transformer, cross-sample repetition, T = {best['T'].iloc[0]}")
    legend_outside(picture, ax)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    best = best_rates(table)
    # A cell in which a seed did not emerge has no mean.
    steps = best["plateau_steps"].where(best["status"] == "emerged", np.inf)
    means = best.assign(plateau_steps=steps).pivot_table("plateau_steps", "d", "p").replace(np.inf, np.nan)
    if means.empty or 0.0 not in means or means.shape[1] < 2:
        return [Claim("gain by repetition", "too few runs yet", "repetition helps more as d grows", None)]
    gain = (means[0.0] / means.drop(columns=0.0).min(axis=1)).dropna()
    text = ", ".join(f"d = {d}: {g:.2f} times" for d, g in gain.items())
    whole = set(gain.index) == set(best["d"]) and len(gain) > 1
    large = best["d"].max() >= LARGEST_D and best["seed"].nunique() >= SEEDS
    grows = bool(np.all(np.diff(gain.to_numpy()) > 0) and gain.iloc[-1] > 1) if whole and large else None
    note = "" if grows else DECIDES
    claims = [Claim("best p over none", text or "too few runs yet", "repetition helps more as d grows", grows, note)]
    return [*claims, *_by_seed(best)]


def _by_seed(best: pd.DataFrame) -> list[Claim]:
    """The gain within each seed, and how far the seeds' plateaus lie apart."""
    emerged = best[best["status"] == "emerged"].pivot_table("plateau_steps", ["d", "seed"], "p")
    gain = (emerged[0.0] / emerged.drop(columns=0.0).min(axis=1)).dropna()
    gains = [f"d = {d}: " + "/".join(f"{g:.2f}" for g in part) for d, part in gain.groupby("d")]
    spread = emerged.groupby("d").max() / emerged.groupby("d").min()
    factors = [f"d = {d}: {factor:.2f}" for d, factor in spread.max(axis=1).items()]
    return [
        Claim("best p over none, within each seed", ", ".join(gains)),
        Claim("slowest over fastest seed, at the p where most", ", ".join(factors)),
    ]
