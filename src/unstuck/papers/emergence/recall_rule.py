"""recall-rule: recall by the paper's rule for the slots of the query, beside ours.

C.1 puts the query into each slot with probability B/pairs, so that with B = 1 about a third of the sequences do not
hold it; our default puts it into exactly one slot. Both are tested on sequences that hold it once.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unstuck.columns import CLEAN_ACCURACY, EVALUATED, STEP
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import BLUE, ORANGE, panels

from ._recall import SMALL, UNTIL_50, crossed, paper_law, step_list

RULES = {"always": "in one slot", "bernoulli": "in each slot with probability B/pairs (C.1)"}


def runs(profile: Profile) -> list[TieredRun]:
    sizes, seeds = {
        "quick": ({**SMALL, "task.tokens": 16, "task.pairs": 4, "train.max_steps": 500}, [0]),
        "cpu": ({"task.tokens": 64, "task.pairs": 8, "train.max_steps": 30_000}, [0, 1]),
        "paper": ({"task.tokens": 256, "task.pairs": 32, "train.max_steps": 200_000}, [0, 1, 2]),
    }[profile]
    return grid("recall", 1, seeds, {**sizes, "train.thresholds": UNTIL_50}, task__copies=list(RULES))


def data(done: Finished) -> pd.DataFrame:
    return done.with_crossings("tokens", "pairs", "copies", "seed", STEP, EVALUATED, CLEAN_ACCURACY)


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.2, height=3.7)
    for (rule, name), colour in zip(RULES.items(), (BLUE, ORANGE), strict=True):
        for i, (_, run) in enumerate(table[table["copies"] == rule].groupby("run_id")):
            ax.plot(run["step"], run[CLEAN_ACCURACY], color=colour, lw=1.2, label=name if i == 0 else None)
    ends = [step for _, run in table.groupby("run_id") if np.isfinite(step := crossed(run, 0.5))]
    ax.set(xlabel="step", ylabel="accuracy on clean data", ylim=(0, 1.02), xlim=(0, 1.3 * max(ends) if ends else None))
    ax.axhline(1 / table["pairs"].iloc[0], color="#999999", lw=0.8, ls=":")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_title(f"recall, {table['tokens'].iloc[0]} tokens, {table['pairs'].iloc[0]} pairs")
    ax.legend(loc="upper left")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    law = float(paper_law(table["tokens"].iloc[0], table["pairs"].iloc[0]))
    for level in UNTIL_50:
        steps: dict[str, list[float]] = {}
        shown = []
        for rule, rows in table.groupby("copies"):
            seeds = [run for _, run in rows.groupby("seed")]
            mine = steps[str(rule)] = [crossed(run, level) for run in seeds]
            shown.append(f"{rule}: {step_list(mine, [float(run['step'].max()) for run in seeds])}")
        claims.append(Claim(f"steps to {level:.0%}, seeds in order", "; ".join(shown)))
        if len(steps) == 2 and all(np.isfinite(mine).all() and min(mine) > 0 for mine in steps.values()):
            means = {rule: float(np.exp(np.mean(np.log(mine)))) for rule, mine in steps.items()}
            ratio = f"{means['bernoulli'] / means['always']:.2f} times"
            claims.append(Claim(f"the paper's rule over ours, to {level:.0%}", ratio))
            if level == 0.05:
                text = ", ".join(f"{rule}: {mean / law:.2f} times" for rule, mean in means.items())
                note = "a guess scores more" if 1 / table["pairs"].iloc[0] > level else ""
                claims.append(Claim("steps to 5% over the paper's law", text, "1", None, note))
    return claims
