"""Our runs beside the published values of paper 2, and when they agree.

Only runs with the published teacher judge. A value agrees if the mean of its training seeds is within 15%, within 0.05
(nats, or parts of the specialisation index), or within the range of the seeds, whichever is largest; a time if it is
within 20%. When a stage ends varies from run to run, so KL values that do not agree at the same step are compared at
the same KL to the last truth as well. These margins are those of two runs of an independent program in one setting.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.columns import TEST_LOSS, predictor
from unstuck.papers.figure import Claim

from ._published import Published, updates

RELATIVE, ABSOLUTE, TIME = 0.15, 0.05, 0.20
IN_TIME = (TIME, 0.0)  # margins of a time
WITHIN_RANGE = "within the range of the seeds"  # said where the other margins are too narrow for an agreement
Array = NDArray[np.float64]


def judging(table: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs with the published teacher, a curve each; none in the quick profile."""
    if "teacher" not in table:
        return []
    mine = table[table["teacher"] == "published"]
    return [curve.reset_index(drop=True) for _, curve in mine.groupby("run_id", sort=False)]


def within(ours: Sequence[float], published: float, relative: float = RELATIVE, absolute: float = ABSOLUTE) -> bool:
    """Does the mean of the seeds agree with a published value?

    Examples:
        >>> within([1.0, 1.2], 1.2), within([0.1], 0.14), within([1.0], 1.2)
        (True, True, False)
    """
    margin = max(relative * abs(published), absolute, max(ours) - min(ours))
    return bool(abs(float(np.mean(ours)) - published) <= margin)


def by_range(ours: Sequence[float], published: float, relative: float = RELATIVE, absolute: float = ABSOLUTE) -> str:
    """What to say of an agreement that rests on the range of the seeds alone; nothing of any other.

    Examples:
        >>> by_range([0.35, 0.21], 0.21), by_range([0.22, 0.21], 0.21)
        ('within the range of the seeds', '')
    """
    return "" if within([float(np.mean(ours))], published, relative, absolute) else WITHIN_RANGE


def at(curve: pd.DataFrame, columns: Sequence[str], step: float) -> Array:
    """Values after so many updates, interpolated; NaN beyond the run."""
    x = curve["step"].to_numpy(dtype=float)
    values = [np.interp(step, x, curve[c].to_numpy(dtype=float), right=np.nan) for c in columns]
    return np.array(values)


def falls_to(curve: pd.DataFrame, column: str, level: float, near: float = 0.0) -> float:
    """The step at which a column falls through a level, its logarithm interpolated; of several the nearest to `near`,
    by default the first; NaN if never."""
    x, y = curve["step"].to_numpy(dtype=float), np.log(np.maximum(curve[column].to_numpy(dtype=float), 1e-12))
    wanted = np.log(level)
    falls = np.flatnonzero((y[:-1] > wanted) & (y[1:] <= wanted)) + 1
    found = [float(np.interp(-wanted, [-y[i - 1], -y[i]], [x[i - 1], x[i]])) for i in falls]
    found += [float(x[0])] if len(y) and y[0] <= wanted else []
    return min(found, key=lambda step: abs(step - near), default=float("nan"))


def crosses(curve: pd.DataFrame, lower: str, higher: str) -> float:
    """The first step from which on `lower` lies above `higher`, logarithms interpolated; NaN if never."""
    x, y = curve["step"].to_numpy(dtype=float), np.log(curve[lower] / curve[higher]).to_numpy(dtype=float)
    up = np.flatnonzero((y[:-1] < 0) & (y[1:] >= 0))
    return float(np.interp(0.0, y[up[0] : up[0] + 2], x[up[0] : up[0] + 2])) if len(up) else float("nan")


def numbers(values: Sequence[float] | Array, digits: int = 2) -> str:
    return "/".join("–" if np.isnan(v) else f"{v:.{digits}f}" for v in values)


def listed(parts: Sequence[str]) -> str:
    """One entry a seed; one alone where all are the same."""
    return "; ".join(dict.fromkeys(parts))


def kl_claims(runs: list[pd.DataFrame], columns: Sequence[str], names: str, published: Published) -> list[Claim]:
    """KL at each published step: at the same number of updates, else at the same KL to the last truth."""
    claims = []
    for step, theirs in published.kl.items():
        ours = np.array([at(run, columns, updates(step)) for run in runs])  # (seeds, columns)
        text, note = listed([numbers(row) for row in ours]), ""
        if np.isnan(ours).any():
            claims.append(Claim(f"KL to {names} at step {step}", text, numbers(theirs), None, "run not that long yet"))
            continue
        agrees = all_within(ours, theirs)
        if agrees and not all_within(ours.mean(0, keepdims=True), theirs):
            note = WITHIN_RANGE
        if not agrees:
            when = [falls_to(run, columns[-1], theirs[-1], updates(step)) for run in runs]
            matched = np.array([at(run, columns, t) for run, t in zip(runs, when, strict=True)])
            if not np.isnan(matched).any():
                agrees = all_within(matched, theirs)
                note = f"at the same {names.split('/')[-1]} (step {numbers(when, 0)}): "
                note += listed([numbers(row) for row in matched])
                if agrees and not all_within(matched.mean(0, keepdims=True), theirs):
                    note += f"; {WITHIN_RANGE}"
        note = note if agrees else "; ".join(filter(None, [note, published.decides]))
        claims.append(Claim(f"KL to {names} at step {step}", text, numbers(theirs), agrees, note))
    return claims


def all_within(ours: Array, theirs: Sequence[float], relative: float = RELATIVE, absolute: float = ABSOLUTE) -> bool:
    """Does each column of (seeds, values) agree with its published value?"""
    return all(within(list(c), value, relative, absolute) for c, value in zip(ours.T, theirs, strict=True))


def judged_together(
    name: str, ours: Array, theirs: Sequence[float], decides: str, digits: int = 2, absolute: float = ABSOLUTE
) -> Claim:
    """Values of all seeds, (seeds, values), beside published ones; unknown where a run has not come that far."""
    text, paper = listed([numbers(row, digits) for row in ours]), numbers(theirs, digits)
    if np.isnan(ours).any():
        return Claim(name, text, paper, None, "run not that long yet")
    agrees = all_within(ours, theirs, absolute=absolute)
    by_mean = all_within(ours.mean(0, keepdims=True), theirs, absolute=absolute)
    return Claim(name, text, paper, agrees, "" if by_mean else WITHIN_RANGE if agrees else decides)


def stage_claims(runs: list[pd.DataFrame], columns: Sequence[str], published: Published) -> list[Claim]:
    """When each stage ends. The authors shade stages by eye; ours ends where our KL to the last truth is what the
    published curve has at the end of the stage (logarithms interpolated between its published values). Where that KL is
    not known, the step at which our model comes nearer to the next predictor stands beside: the shading is not exactly
    there in the published figures that have both."""
    steps = sorted(published.kl)
    claims = []
    for i, theirs in enumerate(published.stages):
        name = f"end of stage {i + 1}"
        if not steps or not steps[0] <= theirs <= steps[-1]:
            nearer = [crosses(run, columns[i], columns[i + 1]) - updates(0) for run in runs]
            note = "where our KL to the next predictor becomes the smaller one; the published KL there is not known"
            claims.append(Claim(name, numbers(nearer, 0), f"{theirs:g}", None, note))
            continue
        logs = np.log([published.kl[s][-1] for s in steps])
        level = float(np.exp(np.interp(theirs, steps, logs)))
        ours = [falls_to(run, columns[-1], level) - updates(0) for run in runs]
        if np.isnan(ours).any():
            claims.append(Claim(name, "not reached", f"{theirs:g}", None, "run not that far yet"))
            continue
        agrees = within(ours, theirs, *IN_TIME)
        why = by_range(ours, theirs, *IN_TIME) if agrees else published.decides
        note = "; ".join(filter(None, [f"KL to the truth falls to {level:.2f}", why]))
        claims.append(Claim(name, numbers(ours, 0), f"{theirs:g}", agrees, note))
    return claims


def minimum_claims(runs: list[pd.DataFrame], columns: Sequence[str], published: Published) -> list[Claim]:
    """The lowest KL to each model of restricted context, and its step."""
    claims = []
    for column, (value, step) in zip(columns, published.minima, strict=False):
        lowest = [int(run[column].to_numpy().argmin()) for run in runs]
        values = [float(run[column].iloc[i]) for run, i in zip(runs, lowest, strict=True)]
        steps = [float(run["step"].iloc[i]) - updates(0) for run, i in zip(runs, lowest, strict=True)]
        c = predictor(column)[1]
        for what, ours, theirs, margins, digits in (
            ("lowest KL", values, value, (RELATIVE, ABSOLUTE), 2),
            ("step of the lowest KL", steps, step, IN_TIME, 0),
        ):
            claims.append(judged(f"{what} to c = {c}", ours, theirs, published.decides, margins, digits))
    return claims


def value_claims(
    runs: list[pd.DataFrame], column: str, name: str, values: Mapping[int, float], decides: str
) -> list[Claim]:
    """One column at published steps."""
    claims = []
    for step, theirs in values.items():
        ours = [float(at(run, [column], updates(step))[0]) for run in runs]
        claims.append(judged(f"{name} at step {step}", ours, theirs, decides))
    return claims


def judged(
    name: str,
    ours: Sequence[float],
    theirs: float,
    decides: str,
    margins: tuple[float, float] = (RELATIVE, ABSOLUTE),
    digits: int = 2,
) -> Claim:
    """The values of all seeds beside a published one; unknown where a run has not come that far."""
    known = not np.isnan(ours).any()
    agrees = within(ours, theirs, *margins) if known else None
    note = by_range(ours, theirs, *margins) if agrees else decides if known else "run not that long yet"
    return Claim(name, numbers(ours, digits), f"{theirs:g}", agrees, note)


def order_claims(table: pd.DataFrame, columns: Sequence[str], decides: str) -> list[Claim]:
    """Does every run come nearest to the predictors one after the other? Runs with other teachers stand beside."""
    judges = judging(table)
    known = {curve["run_id"].iloc[0] for curve in judges}
    others = [curve for run_id, curve in table.groupby("run_id", sort=False) if run_id not in known]
    claims = []
    nearest = "step nearest to each predictor"
    for runs, name in ((judges, nearest), (others, "the same, other teachers or sizes" if judges else nearest)):
        if runs:
            text, ordered = _order(runs, columns)
            agrees = ordered if runs is judges else None
            note = "a quick run, not judged" if not judges else "" if agrees is not False else decides
            claims.append(Claim(name, text, "the simpler first", agrees, note))
    return claims


def _order(runs: list[pd.DataFrame], columns: Sequence[str]) -> tuple[str, bool]:
    shown, ordered = [], []
    for curve in runs:
        smooth = curve[list(columns)].rolling(3, min_periods=1, center=True).median()
        nearest = [float(curve["step"].iloc[int(smooth[c].to_numpy().argmin())]) for c in columns]
        shown.append(", ".join(f"{step:.0f}" for step in nearest))
        ordered.append(all(a < b for a, b in itertools.pairwise(nearest)))
    return "; ".join(shown), all(ordered)


def curve_claims(table: pd.DataFrame, columns: Sequence[str], names: str, published: Published) -> list[Claim]:
    """All that the published figure of a run's curves has numbers for. A quick run is not judged."""
    runs = judging(table)
    if not runs:
        return order_claims(table, columns, published.decides)
    return [
        *kl_claims(runs, columns, names, published),
        *stage_claims(runs, columns, published),
        *minimum_claims(runs, columns, published),
        *value_claims(runs, TEST_LOSS, "validation loss", published.loss, published.decides),
        *order_claims(table, columns, published.decides),
        *_beside(table, columns, names, published),
    ]


def _beside(table: pd.DataFrame, columns: Sequence[str], names: str, published: Published) -> list[Claim]:
    """The same of Haar teachers of our own, which do not judge: their chains have another entropy."""
    others = table[table["teacher"] != "published"]
    claims = []
    for step in published.kl if len(others) else ():
        rows = [at(run, columns, updates(step)) for _, run in others.groupby("run_id", sort=False)]
        claims.append(Claim(f"KL to {names} at step {step}, two other teachers", listed(list(map(numbers, rows)))))
    return claims
