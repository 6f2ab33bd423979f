"""Figure 5: with less data the minimal model stops at a simpler predictor, and early stopping picks it.

Left: the best validation loss so far, above the teacher's, for 600, 2,000 and 9,000 sequences and for 3,000 new ones at
every step. Right: KL to models of restricted context that were trained on the same sequences, dashed the best step.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.columns import EXCESS_LOSS, predictor
from unstuck.curve import Curve
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import panels, shades

from ._curves import curve_table
from ._judge import IN_TIME, at, judged, judged_together, judging
from ._published import FIG5_BEST, FIG5_KL, FIG5_LATE, FIG5_STEP, MORE_SEEDS, updates
from ._runs import minimal_runs, with_contexts

SIZES, CONTEXTS = [600, 2000, 9000], [2, 4, 6]
STEPS = 1000


def runs(profile: Profile) -> list[TieredRun]:
    quick = profile == "quick"
    sizes = [50, 200, 2000] if quick else SIZES
    sized = with_contexts(
        minimal_runs(profile, STEPS, task__sequences=sizes), [1, 2, 3] if quick else CONTEXTS, profile
    )
    return [*sized, *minimal_runs(profile, STEPS, changes={"task.sequences": 0})]


def data(done: Finished) -> pd.DataFrame:
    table = curve_table(done)
    if table.empty:
        return table
    table["best"] = table.groupby("run_id")[EXCESS_LOSS].cummin()
    curve = Curve.of(table)
    of_heads = {*curve.ladder_names} - {*curve.rung_names, *curve.context_names}
    return table[[c for c in table if c not in of_heads]]


def _contexts(table: pd.DataFrame) -> list[str]:
    return Curve.of(table).context_names


def _name(sequences: int) -> str:
    return f"{sequences:,} sequences" if sequences else "new ones at every step"


def draw(table: pd.DataFrame) -> Figure:
    sizes = sorted(table["sequences"].unique(), key=lambda n: n or np.inf)
    limited = [n for n in sizes if n]
    picture, axes = panels(1 + len(limited), width=3.3)
    for size, colour in shades(sizes).items():
        for i, (_, curve) in enumerate(table[table["sequences"] == size].groupby("run_id", sort=False)):
            name = _name(size) if i == 0 else None
            axes[0].plot(curve["step"], curve["best"], color=colour, lw=1.6 if i == 0 else 0.9, label=name)
        if size in FIG5_BEST:
            axes[0].plot([table["step"].max()], [FIG5_BEST[size]], "o", mfc="white", mec=colour, ms=5, zorder=5)
    axes[0].set(xlabel="step", ylabel="best loss above the teacher's so far", yscale="log")
    axes[0].legend(fontsize=7.5)
    for ax, size in zip(axes[1:], limited, strict=True):
        first = next(curve for _, curve in table[table["sequences"] == size].groupby("run_id", sort=False))
        for column, colour in shades(_contexts(table)).items():
            ax.plot(first["step"], first[column], color=colour, label=f"c = {predictor(column)[1]}")
        ax.axvline(_best_step(first), color="#444444", lw=0.9, ls="--")
        ax.set(xlabel="step", ylabel="KL to the restricted model", title=_name(size), yscale="log")
    axes[1].legend(fontsize=7.5)
    return picture


def _best_step(curve: pd.DataFrame) -> float:
    return float(curve["step"].iloc[int(curve[EXCESS_LOSS].to_numpy().argmin())])


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for size, theirs in FIG5_BEST.items():
        found = judging(table[table["sequences"] == size])
        if not found:
            continue
        ours = [float(run[EXCESS_LOSS].min()) for run in found]
        claims.append(judged(f"best loss above the teacher's, {_name(size)}", ours, theirs, MORE_SEEDS))
        if size not in FIG5_STEP:
            continue
        steps = [_best_step(run) - updates(0) for run in found]
        name = f"step of the best loss, {_name(size)}"
        claims.append(judged(name, steps, FIG5_STEP[size], MORE_SEEDS, IN_TIME, digits=0))
        there = np.array([at(run, _contexts(table), _best_step(run)) for run in found])
        name = f"KL to c = 2/4/6 at the best step, {_name(size)}"
        claims.append(judged_together(name, there, FIG5_KL[size], MORE_SEEDS))
        if size == FIG5_LATE[0]:
            late = np.array([at(run, _contexts(table), updates(FIG5_LATE[1])) for run in found])
            name = f"KL to c = 2/4/6 at step {FIG5_LATE[1]}, {_name(size)}"
            claims.append(judged_together(name, late, FIG5_LATE[2], MORE_SEEDS))
    return claims or [Claim("best loss above the teacher's", _quick(table), note="a quick run, not judged")]


def _quick(table: pd.DataFrame) -> str:
    return ", ".join(f"{_name(n)}: {rows[EXCESS_LOSS].min():.2f}" for n, rows in table.groupby("sequences"))
