"""recall-repeated: how many tokens should cross-sample repetition repeat?

The paper repeats two tokens (C.1). Here 1, 2, 4 and 8 with p = 0.5, and no repetition, tested on clean data.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import explain_triangles, plot_runs
from unstuck.papers.style import BLUE, ORANGE, log_steps, panels

from ._recall import SMALL, UNTIL_90, crossing, step_list

IN_PARTS = True  # runs are compared one by one
LEVELS = {0.5: BLUE, 0.9: ORANGE}


def runs(profile: Profile) -> list[TieredRun]:
    fixed, repeated, seeds = {
        "quick": ({**SMALL, "task.tokens": 16, "task.pairs": 4, "train.max_steps": 400}, [1, 4], [0]),
        "cpu": ({"task.tokens": 64, "task.pairs": 8, "train.max_steps": 15_000}, [1, 2, 4, 8], [0, 1]),
        "paper": ({"task.tokens": 256, "task.pairs": 32, "train.max_steps": 300_000}, [1, 2, 4, 8], [0, 1, 2]),
    }[profile]
    fixed = {**fixed, "train.thresholds": UNTIL_90}
    some = grid("recall", 2, seeds, {**fixed, "task.p": 0.5}, task__repeated=repeated)
    return [*some, *grid("recall", 2, seeds, fixed)]


def counted(table: pd.DataFrame) -> pd.DataFrame:
    """With the number of repeated tokens, 0 without repetition."""
    return table.assign(many=table["repeated"].where(table["p"] > 0, 0))


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.0, height=3.7)
    table = counted(table)
    values = sorted(table["many"].unique())
    for i, (level, colour) in enumerate(LEVELS.items()):
        part = crossing(table, level)
        x = np.array([values.index(n) for n in part["many"]]) + 0.12 * i - 0.06
        plot_runs(ax, x, part, colour, f"{level:.0%} on clean data")
    explain_triangles(ax, part)
    ax.set_xticks(range(len(values)), ["none" if n == 0 else f"{n:g}" for n in values])
    ax.set(xlabel="repeated tokens, p = 0.5", ylabel="steps")
    ax.set_title(f"recall, {table['tokens'].iloc[0]} tokens, {table['pairs'].iloc[0]} pairs")
    ax.margins(y=0.15)
    log_steps(ax)
    ax.legend(loc="best")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims, table = runs_in(table), counted(table)
    for level in LEVELS:
        part = crossing(table, level).sort_values("seed")
        part = part.assign(reached=part["plateau_steps"].where(part["status"] == "emerged", np.inf))
        steps = {int(n): (list(rows["reached"]), list(rows["steps"])) for n, rows in part.groupby("many")}
        shown = [f"{n or 'none'}: {step_list(*listed)}" for n, listed in steps.items()]
        claims.append(Claim(f"steps to {level:.0%} by repeated tokens, seeds in order", "; ".join(shown)))
        means = {n: float(np.exp(np.mean(np.log(listed)))) for n, (listed, _) in steps.items()}
        some = {n: mean for n, mean in means.items() if n and np.isfinite(mean)}
        if some and np.isfinite(means.get(0, np.inf)):
            best = min(some, key=lambda n: some[n])
            text = f"{best} ({means[0] / some[best]:.2f} times as fast as none)"
            claims.append(Claim(f"fastest to {level:.0%}", text, "2 are repeated", None))
    return claims
