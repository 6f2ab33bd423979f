"""Figure 4: a smaller start keeps the heads together for longer; without a hierarchy there are no stages.

Loss above the teacher's. Left: queries that start within plus or minus a number, values at zero, and Xavier's start of
both. Right: importance ratios m, Xavier's start.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unstuck.columns import EXCESS_LOSS
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import panels, shades

from ._curves import curve_table
from ._judge import IN_TIME, by_range, falls_to, judging, numbers, value_claims, within
from ._published import FIG4_END, FIG4_RATIOS, FIG4_STARTS, MORE_SEEDS, updates
from ._runs import minimal_runs

STARTS, RATIOS = [0.0, 1e-9, 1e-6, 1e-3], [1.0, 1.3, 1.5]
STEPS = 1000


def runs(profile: Profile) -> list[TieredRun]:
    starts = minimal_runs(profile, STEPS, changes={"model.value": 0.0}, model__query=STARTS)
    return [*starts, *minimal_runs(profile, STEPS), *minimal_runs(profile, STEPS, task__m=RATIOS)]


def data(done: Finished) -> pd.DataFrame:
    table = curve_table(done)
    return table if table.empty else table.assign(query=table["query"].astype(str))


def _ratios(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["query"] == "xavier") & table["m"].isin(RATIOS)]


def _starts(table: pd.DataFrame) -> pd.DataFrame:
    return table[~table["m"].isin(RATIOS)]


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.6)
    starts = sorted(_starts(table)["query"].unique(), key=lambda q: np.inf if q == "xavier" else float(q))
    for query, colour in shades(starts).items():
        label = "Xavier" if query == "xavier" else f"queries within ±{float(query):g}"
        _plot(left, _starts(table)[_starts(table)["query"] == query], FIG4_STARTS.get(query, {}), colour, label)
    for m, colour in shades(RATIOS).items():
        part = _ratios(table)
        _plot(right, part[part["m"] == m], FIG4_RATIOS[m], colour, f"m = {m:g}")
    for ax in (left, right):
        ax.plot([], [], "o", mfc="white", mec="#444444", ms=5, label="published")
        ax.set(xlabel="step", ylabel="loss above the teacher's", yscale="log")
        ax.legend(loc="upper right", fontsize=7.5)
    left.set_title("start of the queries")
    right.set_title("importance ratio, Xavier start")
    return picture


def _plot(ax: Axes, part: pd.DataFrame, published: dict[int, float], colour: object, label: str) -> None:
    for i, (_, curve) in enumerate(part.groupby("run_id", sort=False)):
        name, width = (label, 1.6) if i == 0 else (None, 0.9)
        ax.plot(curve["step"], curve[EXCESS_LOSS], color=colour, lw=width, label=name)
    points = {updates(step): value for step, value in published.items()}
    ax.plot(list(points), list(points.values()), "o", mfc="white", mec=colour, ms=5, zorder=5)


def compare(table: pd.DataFrame) -> list[Claim]:
    starts, claims = _starts(table), []
    for query, published in FIG4_STARTS.items():
        found = judging(starts[starts["query"] == query])
        claims += _excess(found, f"start {query}", published)
    for m, published in FIG4_RATIOS.items():
        part = _ratios(table)
        claims += _excess(judging(part[part["m"] == m]), f"m = {m:g}", published)
    ends = {f"start {q}": judging(starts[starts["query"] == q]) for q in FIG4_STARTS if q != "0.0"}
    ends |= {f"m = {m:g}": judging(_ratios(table)[_ratios(table)["m"] == m]) for m in RATIOS}
    for name, found in ends.items():
        if found:
            ours = [float(run[EXCESS_LOSS].iloc[-1]) for run in found]
            agrees = within(ours, FIG4_END)
            note = by_range(ours, FIG4_END) if agrees else MORE_SEEDS
            claims.append(
                Claim(f"loss above the teacher's at the end, {name}", numbers(ours), "0.09 to 0.10", agrees, note)
            )
    return claims or [Claim("loss above the teacher's", "a quick run, not judged")]


def _excess(found: list[pd.DataFrame], name: str, published: dict[int, float]) -> list[Claim]:
    """At each published step; a value that does not agree there may come within a fifth of the steps."""
    if not found:
        return []
    claims = []
    for step, claim in zip(
        published,
        value_claims(found, EXCESS_LOSS, f"loss above the teacher's, {name},", published, MORE_SEEDS),
        strict=True,
    ):
        when = [falls_to(run, EXCESS_LOSS, published[step]) - updates(0) for run in found]
        if claim.agrees is False and not np.isnan(when).any() and within(when, step, *IN_TIME):
            note = "; ".join(filter(None, [f"there at step {numbers(when, 0)}", by_range(when, step, *IN_TIME)]))
            claims.append(replace(claim, agrees=True, note=note))
        else:
            claims.append(claim)
    return claims
