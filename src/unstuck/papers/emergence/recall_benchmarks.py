"""recall-benchmarks: MQAR and induction heads with one layer and with two.

Two benchmarks of recall by others: MQAR (Arora et al. 2023) and the induction-heads task of the state-space papers (Fu
et al. 2022; Gu and Dao 2023), each at a small size, by a GPT with layer normalisation. Two layers can solve them: the
first copies a key to the position after it, the second selects. One layer needs a size that grows with the length of
the sequence (Sanford, Hsu and Telgarsky 2024, arXiv 2408.14332, for induction heads).
"""

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unstuck.columns import EVALUATED, STEP, TEST_ACCURACY
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.style import BLUE, ORANGE, legend_outside, panels

from ._recall import crossed, step_list

IN_PARTS = True  # every run is a curve of its own
NAMES = {"mqar": "MQAR", "induction-heads": "induction heads"}  # by preset
COLOURS = {2: BLUE, 1: ORANGE}  # by layers
LEVEL = 0.9  # accuracy at which a run has emerged
#: Of the quick profile: a few seconds a run, without emergence.
QUICK = {"train.max_steps": 60, "train.batch": 16}


def runs(profile: Profile) -> list[TieredRun]:
    fixed = QUICK if profile == "quick" else {}
    return [run for preset in NAMES for run in grid(preset, 1, [0, 1], fixed, model__layers=list(COLOURS))]


def data(done: Finished) -> pd.DataFrame:
    table = done.with_crossings("seed", STEP, EVALUATED, TEST_ACCURACY)
    if table.empty:
        return table
    specs = {run.spec.run_id: run.spec for run in done.runs}
    columns = {
        "task": [NAMES[specs[run].task_name.replace("_", "-")] for run in table["run_id"]],
        "layers": [specs[run].model.layers for run in table["run_id"]],
        "chance": [specs[run].task.chance for run in table["run_id"]],
    }
    return table.assign(**columns, wanted=len(done.runs))


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.2, height=3.2)
    for ax, task in zip(axes, NAMES.values(), strict=True):
        part = table[table["task"] == task]
        for layers, colour in COLOURS.items():
            for i, (_, curve) in enumerate(part[part["layers"] == layers].groupby("seed")):
                label = f"{layers} layer{'s' if layers > 1 else ''}" if i == 0 else None
                ax.plot(curve[STEP], curve[TEST_ACCURACY], color=colour, lw=1.2, label=label)
        if len(part):
            ax.axhline(part["chance"].iloc[0], color="#888888", lw=0.8, ls=":", label="chance")
        ax.set(xlabel="step", ylabel="test accuracy", ylim=(0, 1.02), title=task)
        ax.xaxis.set_major_locator(MaxNLocator(5))
    legend_outside(picture, max(axes, key=lambda ax: len(ax.get_legend_handles_labels()[1])))
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    return [*runs_in(table), *_claims(table)]


def _claims(table: pd.DataFrame) -> Iterator[Claim]:
    for (task, layers), part in table.groupby(["task", "layers"], sort=False):
        which = f"{task}, {layers} layer{'s' if layers != 1 else ''}"
        curves = [curve for _, curve in part.groupby("seed")]
        steps = step_list([crossed(c, LEVEL) for c in curves], [float(c[STEP].max()) for c in curves])
        yield Claim(f"steps to {LEVEL:.0%} accuracy, seeds in order, {which}", steps)
        ends = ", ".join(f"{c[TEST_ACCURACY].iloc[-1]:.2f}" for c in curves)
        yield Claim(f"accuracy at the end, {which} (chance {part['chance'].iloc[0]:.2f})", ends)
