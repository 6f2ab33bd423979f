"""fit-halves: does a law from small sizes predict the large ones?

Not in the paper. The runs of Figure 3 left and middle, divided at the median of what the law itself says of their
sizes: fitted on the small half, tested on the large half. And laws side by side, over all of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.errors import BadInput
from unstuck.laws import compare_laws, fit_power_law
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import BLUE, ORANGE, panels

from ._regression import each_once, left_runs, middle_runs

FORMULA, LEVEL = "d + T/B", 0.9
#: The law as the paper has it, and beginning some steps after the start; and the ends of the names of their columns.
OFFSETS: dict[Any, str] = {0.0: "", "fit": "_offset"}
#: Over all runs: with the theory's logarithm in the term of T, with a term more and less, and a power of Eq. 6.
OTHERS = ["d + T*log(T)/B", "d + T + B", "d", "T/B", "sqrt(d)*T*log(sqrt(d)*T/B)/B"]


def runs(profile: Profile) -> list[TieredRun]:
    both = each_once([*left_runs(profile), *middle_runs(profile)])
    if profile == "quick":  # whose one seed would leave three runs a half
        return [*both, *(run._replace(spec=replace(run.spec, seed=1)) for run in both)]
    return both


def data(done: Finished) -> pd.DataFrame:
    """Every run with what the law of the small half says of it."""
    table = done.results
    if len(table) < 8:
        return pd.DataFrame()
    size = fit_power_law(table, FORMULA).predict(table)
    small = size <= np.median(size)
    found = table[["d", "T", "B", "seed", "status", "plateau_steps", "steps"]].assign(fitted=small)
    for offset, suffix in OFFSETS.items():
        said = fit_power_law(table[small], FORMULA, offset=offset).predict_interval(table, LEVEL)
        found = found.assign(**{f"{c}{suffix}": said[c].to_numpy() for c in ("plateau", "low", "high")})
    return found.rename(columns={f"plateau{suffix}": f"said{suffix}" for suffix in OFFSETS.values()})


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
    claims = []
    for suffix in OFFSETS.values():
        said, low, high = (large[f"{c}{suffix}"] for c in ("said", "low", "high"))
        error = np.log(said / large["plateau_steps"])
        inside = large["plateau_steps"].between(low, high).mean()
        factor = f"{np.exp(error.abs().median()):.2f} (bias {np.expm1(error.median()):+.0%}, {len(large)} runs)"
        which = ", with a fitted offset" if suffix else ""
        claims.append(Claim(f"median error factor on the large half{which}", factor))
        claims.append(Claim(f"coverage of 90% intervals there{which}", f"{inside:.0%}"))
    return [*claims, *_side_by_side(table)]


def _side_by_side(table: pd.DataFrame) -> list[Claim]:
    try:
        laws = compare_laws(table, [FORMULA, *OTHERS])
    except BadInput:  # too few sizes for one of them
        return []
    text = "; ".join(
        f"{law}: {above:.0f} ({held:.2f})" for law, above, held in laws.iloc[:, :3].itertuples(index=False)
    )
    about = "laws over all runs: AIC above the best (mean log likelihood of a run whose size was left out)"
    return [Claim(about, text)]
