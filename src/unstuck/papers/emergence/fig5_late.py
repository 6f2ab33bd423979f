"""fig5-late: does strong repetition come back, if one waits?

Section 3.2 says that runs with too much repetition first overfit, and generalise late. Figure 5's stronger ones, four
times as long, tested on clean data and on data like their training data; of B = 4 the seed that had not got there.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.columns import CLEAN_ACCURACY, LIKE_ACCURACY, REPETITION, STEP
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import BLACK, panels

from ._recall import SMALL, UNTIL_90, first_step, step_list
from ._repetition import outcomes, overfit_claims, plot_accuracy, repetition_data, repetition_runs

NONE = "no repetition"


def runs(profile: Profile) -> list[TieredRun]:
    sizes, steps = {
        "quick": ({**SMALL, "task.tokens": 16, "task.pairs": 4}, 800),
        "cpu": ({"task.tokens": 64, "task.pairs": 8}, 60_000),
        "paper": ({"task.tokens": 256, "task.pairs": 32}, 1_000_000),
    }[profile]
    fixed = {**sizes, "train.thresholds": UNTIL_90, "train.max_steps": steps, "train.at_least": steps}
    none = next(r for r in repetition_runs(profile, "B") if r.spec.seed == 0 and r.spec.task.B == 1)  # as long as there
    copies, seed = {"quick": ([2, 4], 0), "cpu": ([4], 2), "paper": ([4, 8], 0)}[profile]
    long = [*grid("recall", 3, [seed], fixed, task__B=copies), *grid("recall", 3, [0], fixed, task__p=[0.5, 0.9])]
    return [none._replace(tier=3), *long]


def data(done: Finished) -> pd.DataFrame:
    table = repetition_data(done)
    if table.empty:
        return table
    names = np.where(table["p"] == 0, "B = " + table["B"].map("{:g}".format), "p = " + table["p"].map("{:g}".format))
    return table.assign(**{REPETITION: np.where((table["p"] == 0) & (table["B"] == 1), NONE, names)})


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.6)
    for ax, column, title in zip(axes, (CLEAN_ACCURACY, LIKE_ACCURACY), ("clean", "training-like"), strict=True):
        plot_accuracy(ax, table, REPETITION, column)
        ax.set_ylabel(f"accuracy on {title} data")
        ends = table[table[REPETITION] == NONE]
        if len(ends):  # it was not trained any further
            ax.plot(ends[STEP].max(), ends.sort_values(STEP)[column].iloc[-1], "|", ms=12, color=BLACK)
    axes[1].legend(loc="lower right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    parts = []
    for name, run in table.groupby(REPETITION):
        like, clean = (first_step(run, column, 0.9) for column in (LIKE_ACCURACY, CLEAN_ACCURACY))
        last = float(run[STEP].max())
        end = run.loc[run[STEP] >= 0.9 * last, CLEAN_ACCURACY].mean()
        parts.append(f"{name}: {step_list([like], last)} and {step_list([clean], last)}, {end:.2f} at the end")
    steps = Claim("steps to 90% on training-like and on clean data", "; ".join(parts))
    return [steps, *overfit_claims(outcomes(table, REPETITION, NONE), REPETITION)]
