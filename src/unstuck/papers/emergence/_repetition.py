"""Recall with repetition: runs by profile, their accuracy on clean and on training-like data, what it did to them.

Repetition offers a shortcut: with B copies of the query its value is often the most frequent one of the context, and
with p nearly all queries are one of two tokens. A run that takes the shortcut does well on data like its own and badly
on clean data. A run *overfits* here if it does so when runs without repetition are at 50% on clean data; before that
step they have learnt nothing either. It *comes back late* if it gets to 50% on clean data after it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from unstuck.columns import CLEAN_ACCURACY, EVALUATED, LIKE_ACCURACY, STEP
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import BLACK, BLUE, RED, shades

from ._recall import SMALL, UNTIL_90, crossed, step_list

LEVELS = {5: "few", 50: "half", 90: "most"}  # per cent on clean data that steps are counted to
GAP = 0.3  # by so much training-like accuracy exceeds clean accuracy in a run that overfits
HUES = {"no": [BLACK], "B": ["#6BB5E0", BLUE], "p": ["#F2B86B", RED]}  # weaker first
NEAR = 5  # rows of a curve that are taken together for it


def repetition_runs(profile: Profile, key: str) -> list[TieredRun]:
    """Figures 5 and 16: several B, or several p, for a fixed number of steps."""
    tier, seeds, sizes = {
        "quick": (2, [0], {**SMALL, "task.tokens": 16, "task.pairs": 4, "train.max_steps": 500}),
        "cpu": (2, [0, 1], {"task.tokens": 64, "task.pairs": 8, "train.max_steps": 15_000}),
        "paper": (2, [0, 1, 2], {"task.tokens": 256, "task.pairs": 32, "train.max_steps": 300_000}),
    }[profile]
    copies: dict[Profile, list[float]] = {"quick": [1, 2], "cpu": [1, 1.5, 2, 4], "paper": [1, 1.5, 2, 4, 8]}
    values = copies[profile] if key == "B" else [0.0, 0.5] if profile == "quick" else [0.0, 0.1, 0.5, 0.9]
    fixed = {**sizes, "train.thresholds": UNTIL_90, "train.at_least": sizes["train.max_steps"]}
    runs = grid("recall", tier, seeds, fixed, **{f"task__{key}": values})
    if profile == "cpu":  # a third seed of what the figure `schedule` has too, no longer than there
        shorter = {**sizes, "train.thresholds": UNTIL_90, "train.after": 500}
        runs += grid("recall", tier, [2], shorter, **{f"task__{key}": values if key == "B" else [0.0]})
    return runs


def repetition_data(done: Finished) -> pd.DataFrame:
    """Accuracy over training on clean and on training-like data, with each run's crossings on clean data."""
    sizes = ["tokens", "pairs", "B", "p", "layer_norm", "seed"]
    return done.with_crossings(*sizes, STEP, EVALUATED, CLEAN_ACCURACY, LIKE_ACCURACY)


# -- pictures


def plot_accuracy(ax: Axes, table: pd.DataFrame, key: str, column: str) -> None:
    """A line for each run, coloured by its repetition; dotted a guess among the values of a clean context."""
    for value, colour in _colours(sorted(table[key].unique())).items():
        for i, (_, run) in enumerate(table[table[key] == value].groupby("run_id")):
            label = named(key, value) if i == 0 else None
            ax.plot(run["step"], run[column], color=colour, lw=1.1, alpha=0.85, label=label)
    ax.axhline(1 / table["pairs"].iloc[0], color="#999999", lw=0.8, ls=":")
    ax.set(xlabel="step", ylabel="accuracy", ylim=(0, 1.02))
    ax.xaxis.set_major_locator(MaxNLocator(5))


def _colours(values: Sequence[Any]) -> dict[Any, Any]:
    """Shades for strengths of one repetition; for names of several, a hue for each kind, darker if stronger."""
    if not any(isinstance(v, str) for v in values):
        return shades(values)
    kinds = {kind: [v for v in values if v.startswith(kind)] for kind in HUES}
    return {v: hue for kind, mine in kinds.items() for v, hue in zip(mine, HUES[kind], strict=False)}


def named(key: str, value: Any) -> str:
    """`B = 2`; a value that is a name stands for itself."""
    return value if isinstance(value, str) else f"{key} = {value:g}"


# -- claims


def outcomes(table: pd.DataFrame, key: str, none: Any) -> pd.DataFrame:
    """A row for each run: `few`, `half` and `most`, its steps to 5%, 50% and 90% on clean data (infinite: never);
    `last`, its last step; by how much training-like accuracy exceeds clean accuracy when runs without repetition are at
    50% (`gap`), and at its end (`end`); whether it overfits, and whether it comes back late. Without such runs they
    are NaN and false. `there` says whether all of those got to 50%; where one did not, its last step is used."""
    base = [(crossed(run, 0.5), run["step"].max()) for _, run in table[table[key] == none].groupby("run_id")]
    when = max((min(half, last) for half, last in base), default=np.nan)
    there = all(np.isfinite(half) for half, _ in base)
    rows = []
    for (_, value), run in table.groupby(["run_id", key], sort=False):
        steps = {name: crossed(run, level / 100) for level, name in LEVELS.items()}
        last, gap = float(run[STEP].max()), _gap(run, when)
        overfits = value != none and gap >= GAP
        late = overfits and when < steps["half"] < np.inf
        row = {key: value, "seed": run["seed"].iloc[0], **steps, "last": last, "when": when, "there": there}
        rows.append(row | {"gap": gap, "end": _gap(run, last), "overfits": overfits, "late": late})
    return pd.DataFrame(rows)


def _gap(run: pd.DataFrame, step: float) -> float:
    """By how much training-like accuracy exceeds clean accuracy in the rows around a step, or around the end of a run
    that was over before, having learnt clean data. Rows count by the clean sequences they are of: most are of the same
    64, and those of all 2,048 say more."""
    if not np.isfinite(step):
        return np.nan
    near = run.loc[(run["step"] - step).abs().nsmallest(NEAR).index]
    return float(np.average(near[LIKE_ACCURACY] - near[CLEAN_ACCURACY], weights=near[EVALUATED]))


def repetition_claims(table: pd.DataFrame, key: str, none: Any, factor: float) -> list[Claim]:
    """How much faster the best repetition is on clean data, beside the paper's factor; which ones overfit; which come
    back late."""
    runs = outcomes(table, key, none).sort_values("seed", kind="stable")
    claims = []
    for level, column in LEVELS.items():
        if f"crossing_{level / 100:g}" not in table:
            continue
        steps = {v: step_list(list(rows[column]), list(rows["last"])) for v, rows in runs.groupby(key)}
        text = "; ".join(f"{named(key, v)}: {listed}" for v, listed in steps.items())
        claims.append(Claim(f"steps to {level}% on clean data, seeds in order", text))
    base, others = runs[runs[key] == none], runs[runs[key] != none]
    if len(base) and len(others):
        widest = Claim("training-like over clean accuracy, where most, seeds in order", _widest(table, key, none))
        early = [_early_speed_up(others, base, key, factor, table)] if "crossing_0.05" in table else []
        return [*claims, _speed_up(others, base, key, factor), *early, *overfit_claims(runs, key), widest]
    return claims


def _widest(table: pd.DataFrame, key: str, none: Any) -> str:
    """By how much and when training-like accuracy exceeded clean accuracy the most: a shortcut that was taken, also if
    it was left before others knew anything."""
    found: dict[Any, list[str]] = {}
    for (value, *_), run in table[table[key] != none].groupby([key, "seed", "run_id"]):
        gap = (run[LIKE_ACCURACY] - run[CLEAN_ACCURACY]).rolling(NEAR, center=True, min_periods=1).mean()
        found.setdefault(value, []).append(f"{gap.max():.2f} at step {run['step'][gap.idxmax()]:.0f}")
    return "; ".join(f"{named(key, value)}: {', '.join(gaps)}" for value, gaps in found.items())


def _early_speed_up(others: pd.DataFrame, base: pd.DataFrame, key: str, factor: float, table: pd.DataFrame) -> Claim:
    """The speed-up to the paper's 5%; where a guess among the context's values scores more, it judges nothing."""
    claim = _speed_up(others, base, key, factor, level=5)
    if 1 / table["pairs"].max() <= 0.05:
        return claim
    return replace(claim, agrees=None, note="a guess among the context's values scores more than 5%")


def _speed_up(others: pd.DataFrame, base: pd.DataFrame, key: str, factor: float, level: int = 50) -> Claim:
    """Of the repetition whose slowest seed is fastest, over the seeds that both have, if any. A run without repetition
    that never got there counts with the steps it had, which makes it a bound."""
    what, paper, column = "speed-up of the best repetition over none", f"up to {factor:g} times", LEVELS[level]
    what += f", to {level}%" if level != 50 else ""
    steps = {value: rows[column] for value, rows in others.groupby(key)}
    best = min(steps, key=lambda value: (steps[value].max(), steps[value].min()))
    mine = others[others[key] == best]
    common = set(mine["seed"]) & set(base["seed"])
    some = f", seeds {', '.join(map(str, sorted(common)))}" if 0 < len(common) < max(len(base), len(mine)) else ""
    if common:
        base, mine = base[base["seed"].isin(common)], mine[mine["seed"].isin(common)]
    ours, slow, bound = mine[column], np.minimum(base[column], base["last"]), bool(np.isinf(base[column]).any())
    if np.isinf(ours.max()):
        return Claim(what, f"none got to {level}% with all seeds", paper, None if bound else False)
    low, high = float(slow.min() / ours.max()), float(slow.max() / ours.min())
    mean = float(np.exp(np.log(slow).mean() - np.log(ours).mean()))
    text = f"{mean:.2f} times with {named(key, best)} (any seed against any other {low:.2f} to {high:.2f}{some})"
    text = f"at least {text}" if bound else text
    gain = (mean - 1) / (factor - 1)
    agrees = True if low > 1 and gain >= 0.5 else False if gain < 0.25 and not bound else None
    return Claim(
        what,
        text,
        paper,
        agrees,
        "agrees if every seed is faster and the gain at least half of the paper's; differs if below a quarter of it",
    )


def overfit_claims(runs: pd.DataFrame, key: str) -> list[Claim]:
    """Which repetition overfits, and which comes back late. That none has come back in so many steps says nothing
    against its coming back in more."""
    when, there = runs["when"].iloc[0], bool(runs["there"].all())
    then = "when runs without repetition are at 50%" if there else "when not all runs without repetition are at 50%"
    found = _seeds(runs, key, "overfits", ("gap", "end"))
    claims = [
        Claim(
            f"overfits: clean accuracy {GAP} or more below training-like accuracy at step {when:.0f}, {then}",
            found or "none",
            "too much repetition overfits",
            _mostly(runs.groupby(key)["overfits"].mean().max()) if there else None,
            "to agree, more than half of the seeds of one repetition are to" if found else "",
        )
    ]
    back = _seeds(runs, key, "late", ())
    text = back or (f"none by step {runs['last'].max():.0f}" if found else "none overfits")
    claims.append(
        Claim(
            "comes back late: overfits, and gets to 50% on clean data",
            text,
            "later groks",
            bool(back) or None,
            "" if back else "in more steps it may" if found else "only what overfits can",
        )
    )
    return claims


def _mostly(share: float) -> bool | None:
    """Whether most seeds do: unknown (None) if some do, but not most."""
    return True if share > 0.5 else False if share == 0 else None


def _seeds(runs: pd.DataFrame, key: str, column: str, gaps: Sequence[str]) -> str:
    """`B = 4 (2 of 2 seeds: gap 0.81, at its end 0.02)`, for each repetition with such a seed."""
    words = {"gap": "gap", "end": "at its end"}
    parts = []
    for value, rows in runs.groupby(key):
        mine = rows[rows[column]]
        if len(mine):
            shown = ", ".join(f"{words[g]} {mine[g].mean():.2f}" for g in gaps)
            parts.append(f"{named(key, value)} ({len(mine)} of {len(rows)} seeds{': ' if shown else ''}{shown})")
    return ", ".join(parts)
