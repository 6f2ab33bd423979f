"""fit-halves: does a law from small sizes predict the large ones?

Not in the paper. The runs of Figure 3 left and middle, divided at the median of what the law itself says of their
sizes: fitted on the small half, tested on the large half. And laws side by side, over all of them.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.errors import BadInput
from unstuck.laws import compare_laws, fit_power_law
from unstuck.papers.emergence._regression import left_runs, middle_runs
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun, finished
from unstuck.papers.style import BLUE, ORANGE, panels

FORMULA, LEVEL = "d + T/B", 0.9
#: Over all runs: with the theory's logarithm in the term of T, with a term more and less, and a power of Eq. 6.
OTHERS = ["d + T*log(T)/B", "d + T + B", "d", "T/B", "sqrt(d)*T*log(sqrt(d)*T/B)/B"]


def runs(profile: Profile) -> list[TieredRun]:
    both = {run.spec.run_id: run for run in (*left_runs(profile), *middle_runs(profile))}
    if profile == "quick":  # whose one seed would leave three runs a half
        more = [run._replace(spec=replace(run.spec, seed=1)) for run in both.values()]
        return [*both.values(), *more]
    return list(both.values())


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    """Every run with what the law of the small half says of it."""
    table = finished(runs(profile), store)
    if len(table) < 8:
        return pd.DataFrame()
    size = fit_power_law(table, FORMULA).predict(table)
    small = size <= np.median(size)
    law = fit_power_law(table[small], FORMULA)
    said = law.predict_interval(table, LEVEL)
    columns = ["d", "T", "B", "seed", "status", "plateau_steps", "steps"]
    return table[columns].assign(fitted=small, said=said["plateau"], low=said["low"], high=said["high"])


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.0, height=4.4)
    for fitted, colour, label in ((True, BLUE, "fitted"), (False, ORANGE, "predicted, 90% interval")):
        part = table[table["fitted"] == fitted]
        if not fitted:
            spread = [part["said"] - part["low"], part["high"] - part["said"]]
            ax.errorbar(part["plateau_steps"], part["said"], yerr=spread, fmt="none", color=colour, lw=0.8, alpha=0.5)
        ax.plot(part["plateau_steps"], part["said"], "o", ms=4, color=colour, label=label)
    ends = [table["plateau_steps"].min() * 0.9, table["plateau_steps"].max() * 1.1]
    ax.plot(ends, ends, color="#999999", lw=0.8)
    ax.set(xscale="log", yscale="log", xlabel="measured plateau", ylabel="by the law of the small half")
    ax.legend(loc="upper left")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    large = table[~table["fitted"] & (table["status"] == "emerged")]
    error = np.log(large["said"] / large["plateau_steps"])
    inside = ((large["low"] <= large["plateau_steps"]) & (large["plateau_steps"] <= large["high"])).mean()
    factor = f"{np.exp(error.abs().median()):.2f} (bias {np.expm1(error.median()):+.0%}, {len(large)} runs)"
    return [
        Claim("median error factor on the large half", factor, None, None),
        Claim("coverage of 90% intervals there", f"{inside:.0%}", None, None),
        *_side_by_side(table),
    ]


def _side_by_side(table: pd.DataFrame) -> list[Claim]:
    try:
        laws = compare_laws(table, [FORMULA, *OTHERS])
    except BadInput:  # too few sizes for one of them
        return []
    text = "; ".join(f"{law}: {aic:.0f} ({held:.2f})" for law, aic, held in laws.iloc[:, :3].itertuples(index=False))
    about = "laws over all runs: AIC above the best (mean log likelihood of a run whose size was left out)"
    return [Claim(about, text, None, None)]
