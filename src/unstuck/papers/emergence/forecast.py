"""forecast: when the loss leaves its plateau, by eight forecasters, on sizes that they were not fitted on.

Not in the paper: the leaderboard of `unstuck bench forecast`. Above: the median error of forecasts, by the fraction of
the steps to the exit that had elapsed, on regression and on recall. A point is not drawn if less than a third of the
questions were answered. Below: how often an event came before twice the present step, against the probability that was
stated; and the share of runs that cannot emerge, of curves that only drift, and of runs that have emerged and cannot
again, with an alarm at some time. Bars and shades are 95% intervals from resampled runs.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unstuck.forecast.benchmark import LARGER, OTHERS_MODELS, results
from unstuck.forecast.scoring import ALL, BINS, GROUPS, LATER, OTHER_NEVER, OTHER_TASK, Row, leaderboard
from unstuck.papers.figure import Claim, Job, Profile, Progress, load
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import BLACK, BLUE, GREEN, ORANGE, PAPER_GREY, PURPLE, RED, legend_outside, panels

MODEL, BOTH, SHIPPED, LAW = "survival model", "survival model and law", "rule shipped before", "law of sizes"
COLOURS = {
    "twice elapsed": PAPER_GREY,
    "loss extrapolation": BLACK,
    "previous-token rule": "#56B4E9",
    "progress law": PURPLE,
    LAW: ORANGE,
    SHIPPED: RED,
    MODEL: GREEN,
    BOTH: BLUE,
}
DRAWN = ("regression", "recall")
NEVER = {
    "negative control": "runs that cannot emerge",
    "drift": "curves that only drift",
    "floor": "runs at their last level",
    OTHER_NEVER: "runs that cannot emerge, of no known task",
}
RUNS = (
    *("regression", LARGER, "regression, p > 0", "regression, layer norm", "regression, SGD", "recall"),
    *("recall, p > 0", "recall, layer norm", "MQAR and induction heads", "Markov chains", "text, layer norm"),
    *(OTHERS_MODELS, OTHER_TASK),
)
FEW_ANSWERS, FEW_RUNS = 1 / 3, 5  # below which an error is not drawn; of runs, not claimed
UNLIKELY, LIKELY = "0%-10%", "90%-100%"


def plan(profile: Profile) -> list[Job]:
    return [Job("forecasts of all finished runs", 1, 240.0)]


def overlaid(profile: Profile) -> list[TieredRun]:
    """The runs it is about; all that the store has are taken."""
    names = ("fig3-left", "fig3-middle", "fig3-right", "fig13", "fig4-law")
    return [run for name in names for run in load(name).runs(profile)]  # type: ignore[attr-defined]


def data(profile: Profile, progress: Progress, store: Path | None = None) -> pd.DataFrame:
    """All scores of all entrants."""
    return pd.DataFrame() if store is None else results(store, progress=progress)


def draw(table: pd.DataFrame) -> Figure:
    table = _read(table)
    picture, (left, right, reliable, alarms) = panels(2, 2, width=5.0, height=3.6)
    for ax, name in zip((left, right), DRAWN, strict=True):
        _draw_errors(ax, table, name)
    _draw_reliability(reliable, table)
    _draw_alarms(alarms, table)
    legend_outside(picture, left, loc="outside lower center", ncols=4)
    return picture


def _read(table: pd.DataFrame) -> pd.DataFrame:
    return table.fillna({"entrant": ""})


def _entrants(table: pd.DataFrame) -> list[str]:
    return [name for name in table["entrant"].unique() if name]


def _draw_errors(ax: Axes, table: pd.DataFrame, name: str) -> None:
    for entrant in _entrants(table):
        mine = Row(entrant, table)
        answered = [mine.value(name, "answered", part) for part in GROUPS]
        errors = [mine.value(name, "error", part) for part in GROUPS]
        drawn = np.where(np.array(answered) >= FEW_ANSWERS, errors, np.nan)
        style = "s--" if entrant == MODEL else "o-"
        ax.plot(range(len(GROUPS)), drawn, style, ms=4, color=COLOURS.get(entrant), label=entrant)
    ax.set_xticks(range(len(GROUPS)), GROUPS)
    ax.set(yscale="log", xlabel="fraction of the steps elapsed", ylabel="median error of the exit", title=name)
    ax.set(ylim=(0.02, 10))
    ax.set_yticks([0.05, 0.1, 0.2, 0.5, 1, 2, 5], ["5%", "10%", "20%", "50%", "100%", "200%", "500%"])
    ax.minorticks_off()


def _draw_reliability(ax: Axes, table: pd.DataFrame) -> None:
    ax.plot([0, 1], [0, 1], color=PAPER_GREY, lw=1, ls=":")
    bins = [f"{i / BINS:.0%}-{(i + 1) / BINS:.0%}" for i in range(BINS)]
    for entrant in (LAW, SHIPPED, MODEL, BOTH):
        rows = table[(table["entrant"] == entrant) & (table["group"] == ALL)].set_index(["measure", "part"])
        there = [name for name in bins if ("happened", name) in rows.index]
        stated = [rows.loc[("stated", name), "value"] for name in there]
        happened = rows.loc[[("happened", name) for name in there]]
        ax.fill_between(stated, happened["low"], happened["high"], color=COLOURS[entrant], alpha=0.12, lw=0)
        ax.plot(stated, happened["value"], "o-", ms=3, color=COLOURS[entrant], lw=1.2)
    ax.set(xlabel="stated: exit before twice the present step", ylabel="happened", xlim=(0, 1), ylim=(0, 1))


def _draw_alarms(ax: Axes, table: pd.DataFrame) -> None:
    entrants = _entrants(table)
    for i, (name, label) in enumerate(NEVER.items()):
        for j, entrant in enumerate(entrants):
            rows = table[(table["entrant"] == entrant) & (table["group"] == name) & (table["measure"] == "alarm")]
            for _, value, low, high in rows[["part", "value", "low", "high"]].itertuples(index=False):
                place = i + (j - len(entrants) / 2) * 0.1
                ax.bar(place, value, 0.09, color=COLOURS.get(entrant), label=label)
                ax.plot([place, place], [low, high], color=BLACK, lw=0.8)
    ax.set_xticks(range(len(NEVER)), [textwrap.fill(label, 14) for label in NEVER.values()])
    ax.set(ylabel="share with an alarm at some time", ylim=(0, 1.02))


def compare(table: pd.DataFrame) -> list[Claim]:
    table = _read(table)
    about = table[table["measure"] == "moments"].iloc[0]
    claims = [
        Claim("moments at which runs are forecast", int(about["value"]), note=f"{about['runs']} runs; {about['part']}")
    ]
    for name in RUNS:
        claims += [claim for entrant in _entrants(table) for claim in _errors(Row(entrant, table), entrant, name)]
    for name, words in NEVER.items():
        claims += [
            claim for entrant in _entrants(table) for claim in _alarms(Row(entrant, table), entrant, name, words)
        ]
    for entrant in (MODEL, BOTH):
        mine = Row(entrant, table)
        for part, words in ((UNLIKELY, "at most 10%"), (LIKELY, "at least 90%")):
            claims.append(
                Claim(f"{entrant}: events that came where {words} was stated", mine.shown(ALL, "happened", part))
            )
    return claims


def _errors(mine: Row, entrant: str, name: str) -> Iterator[Claim]:
    if not mine.runs(name, "error", "from 30%") >= FEW_RUNS:
        return
    shown = {part: mine.shown(name, "error", part) for part in ("from 15%", "from 30%")}
    note = f"{mine.runs(name, 'error', 'from 30%')} runs; {shown['from 15%']} from 15% on"
    note += f"; answers {mine.value(name, 'answered', 'from 15%'):.0%} from 15% on"
    if not np.isnan(mine.value(name, "coverage")):
        note += f"; the 80% interval holds {mine.shown(name, 'coverage')}"
    if not np.isnan(mine.value(name, "lead")):
        note += f"; lead {mine.value(name, 'lead'):.0%}"
    yield Claim(f"{name}, by {entrant}: median error from 30% of the steps on", shown["from 30%"], note=note)


def _alarms(mine: Row, entrant: str, name: str, words: str) -> Iterator[Claim]:
    if mine.runs(name, "alarm"):
        note = f"{mine.runs(name, 'alarm')} curves; an end named at some time in {mine.shown(name, 'end named')}"
        yield Claim(f"{words}, by {entrant}: alarm at some time", mine.shown(name, "alarm"), note=note)


def overview(table: pd.DataFrame) -> pd.DataFrame:
    """The leaderboard."""
    return leaderboard(_read(table))


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that someone with a stuck run needs first."""
    rows, table = [], _read(table)
    for name in ("regression", LARGER, "recall"):
        for entrant in (MODEL, BOTH):
            mine = Row(entrant, table)
            cells = {part: _with_coverage(mine, name, part) for part in GROUPS}
            rows.append(
                {"runs": f"{name} ({mine.runs(name, 'answered', 'from 15%')})", "forecast by": entrant, **cells}
            )
    return pd.DataFrame(rows)


def _with_coverage(mine: Row, name: str, part: str) -> str:
    """The error at a fraction that has elapsed; in brackets, the coverage where that fraction is stated."""
    error, coverage = mine.value(name, "error", part), mine.value(name, "coverage", part)
    return "–" if np.isnan(error) else f"{error:.0%}" if np.isnan(coverage) else f"{error:.0%} ({coverage:.0%})"


def groups(table: pd.DataFrame) -> pd.DataFrame:
    """The model on every group of runs."""
    rows, table = [], _read(table)
    for name in RUNS:
        for entrant in (MODEL, BOTH):
            mine = Row(entrant, table)
            if not mine.runs(name, "answered", "from 15%") or (entrant == BOTH and np.isnan(_gain(table, name))):
                continue
            row = {"runs": name, "forecast by": entrant, "number": str(mine.runs(name, "answered", "from 15%"))}
            row |= {f"error {part}": mine.shown(name, "error", part) for part in ("from 15%", "from 30%")}
            row |= {"80% interval holds": mine.shown(name, "coverage")}
            rows.append(row | {"answered": mine.shown(name, "answered", "from 15%")})
    return pd.DataFrame(rows)


def later(table: pd.DataFrame) -> pd.DataFrame:
    """Every entrant after an exit: on the next exit, and where none can come."""
    rows, table = [], _read(table)
    for entrant in _entrants(table):
        mine = Row(entrant, table)
        stands = {f"at the last level: {name}": mine.shown("floor", name, LATER) for name in ("alarm", "end named")}
        runs = f"{mine.runs(ALL, 'answered', LATER)}, {mine.runs('floor', 'alarm', LATER)}"
        row = {"entrant": entrant, "runs with another exit, without": runs}
        row |= {f"next exit: {name}": mine.shown(ALL, name, LATER) for name in ("error", "coverage", "answered")}
        rows.append(row | stands)
    return pd.DataFrame(rows)


def _gain(table: pd.DataFrame, name: str) -> float:
    """The error of the law on a group; NaN where it has none."""
    return Row(LAW, table).value(name, "error", "from 15%")
