"""How good the answers of forecasters are: one vote a run, with intervals from resampled runs.

| measure | of the answers of a run | over runs |
|---|---|---|
| error | median of exp abs log(stated / true) - 1, by the fraction that had truly elapsed | median |
| error of all | the same, where silence counts as twice the present step | median |
| pinball | mean pinball loss of the logarithm of the 10, 50 and 90% quantiles | mean |
| coverage | share of events within the 80% interval, by the fraction that the answer states as elapsed | mean |
| lead | part of the steps to an event that is left at the first alarm: `soon` above a half | median |
| answered | share of the moments with an answer | mean |
| stated, happened | probability of the event before twice the present step, and how often it came, in ten bins | mean |
| alarm | is there an alarm at some time at which a run cannot emerge, or not again? | mean |
| end named | is there an answer at such a time? | mean |
| unlike | share of the moments at which the run is said to be unlike those of the fit | mean |
| too soon | share of intervals that ended before the last step, in a run stopped before an event | mean |
| rank correlation | of the step stated at the first alarm and the first event, over runs of one setting | mean |

Steps are counted from when the loss came to its level: from 0 before the first exit.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from .fitting import EDGES

Array = NDArray[np.float64]
VERSION = 1  # raised when the same answers get other scores
GROUPS = [f"{100 * a:.0f}-{b:.0%}" for a, b in itertools.pairwise(EDGES)]  # of fractions elapsed
FROM = {"from 15%": 0.15, "from 30%": 0.3, "from a third": 1 / 3}
BINS = 10  # of probabilities
ALARM = 0.5  # probability
RESAMPLES, SEED, LEVEL = 200, 0, 0.95  # of the bootstrap over runs
EARLIEST = 1e-9  # steps at which a stated end counts if it lies before the first one
LEAST_RUNS = 8  # of one setting, for a rank correlation
ALL, LATER = "all", "after an exit"  # parts of the moments
OTHER_TASK, OTHER_NEVER = "a task left out", "cannot emerge, of no known task"  # groups of runs


class Score(NamedTuple):
    """One number about an entrant, with an interval over runs."""

    entrant: str
    group: str  # of runs
    measure: str
    part: str  # of the moments
    value: float
    low: float
    high: float
    runs: int


def scores(answers: pd.DataFrame) -> pd.DataFrame:
    """All scores of a table of `Benchmark.answers`, a row each. The group `all` has every run once."""
    table = _with_errors(answers)
    found = [_score(entrant, name, *rest) for (entrant, name), part in _parts(table) for rest in _measures(part)]
    return pd.DataFrame([score for score in found if score.runs], columns=list(Score._fields))


class Row:
    """The scores of one entrant."""

    def __init__(self, entrant: str, found: pd.DataFrame) -> None:
        self.scores = found[found["entrant"] == entrant].set_index(["group", "measure", "part"])

    def numbers(self, group: str, measure: str, part: str = ALL) -> tuple[float, float, float]:
        """The value and its interval; NaN where there is none."""
        place = (group, measure, part)
        found = self.scores.loc[place, ["value", "low", "high"]] if place in self.scores.index else (np.nan,) * 3
        value, low, high = map(float, found)
        return value, low, high

    def value(self, group: str, measure: str, part: str = ALL) -> float:
        """NaN where there is none."""
        return self.numbers(group, measure, part)[0]

    def runs(self, group: str, measure: str, part: str = ALL) -> int:
        """How many it rests on."""
        place = (group, measure, part)
        return int(self.scores.loc[place, "runs"]) if place in self.scores.index else 0

    def shown(self, group: str, measure: str, part: str = ALL) -> str:
        """A share or an error in per cent, with its interval."""
        value, low, high = self.numbers(group, measure, part)
        return "–" if np.isnan(value) else f"{value:.0%} ({100 * low:.0f} to {100 * high:.0f})"


#: Of the leaderboard: heading, group of runs, measure, part of the moments.
COLUMNS = (
    ("regression: error from 15%", "regression", "error", "from 15%"),
    ("from 30%", "regression", "error", "from 30%"),
    ("80% interval holds", "regression", "coverage", ALL),
    ("answered", "regression", "answered", "from 15%"),
    ("recall: error from 30%", "recall", "error", "from 30%"),
    ("interval holds", "recall", "coverage", ALL),
    ("answers", "recall", "answered", "from 15%"),
    ("task left out: error from 30%", OTHER_TASK, "error", "from 30%"),
    ("its interval holds", OTHER_TASK, "coverage", ALL),
    ("lead", "regression", "lead", ALL),
    ("alarms: cannot emerge", "negative control", "alarm", ALL),
    ("alarms: drift", "drift", "alarm", ALL),
    ("alarms: at the last level", "floor", "alarm", ALL),
    ("alarms: no known task", OTHER_NEVER, "alarm", ALL),
)


def leaderboard(found: pd.DataFrame) -> pd.DataFrame:
    """The numbers that decide between entrants, in words."""
    rows = []
    for entrant in found["entrant"].unique():
        if not entrant:
            continue
        mine = Row(entrant, found)
        rows.append({"entrant": entrant} | {head: mine.shown(*place) for head, *place in COLUMNS})
    return pd.DataFrame(rows)


def _parts(table: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame]]:
    yield from table.groupby(["entrant", "group"], sort=False)
    once = table[table["group"] == table.groupby(["run_id", "entrant"])["group"].transform("first")]
    for entrant, part in once.groupby("entrant", sort=False):
        yield (entrant, ALL), part


def _with_errors(answers: pd.DataFrame) -> pd.DataFrame:
    """The table with what is scored, at each moment; NaN where it does not apply."""
    since = answers["since"]
    counted = answers[["step", "event", "last", "median"]].sub(since, axis=0).to_numpy(dtype=float).T
    step, event, last, median = np.log(np.maximum(counted, EARLIEST))
    twice = step + np.log(2)
    bounds = answers[["low", "high"]].apply(lambda bound: bound.fillna(answers["median"]) - since)
    low, high = np.log(np.maximum(bounds.to_numpy(dtype=float).T, EARLIEST))
    happens = np.where(event <= twice, 1.0, 0.0)
    unknown = np.isnan(event) & (last < twice)
    stated_soon = answers["soon"].to_numpy(dtype=float)
    alarm = np.where(np.isnan(stated_soon), median <= twice, stated_soon > ALARM)
    inside = np.where(np.isnan(event + answers["low"]), np.nan, (low <= event) & (event <= high))
    return answers.assign(
        error=np.abs(median - event),
        error_of_all=np.abs(np.where(np.isnan(median), twice, median) - event),
        pinball=np.mean([_pinball(event - x, q) for q, x in ((0.1, low), (0.5, median), (0.9, high))], axis=0),
        elapsed=np.exp(step - event),
        stated=np.exp(step - median),
        inside=inside,
        happens=np.where(unknown, np.nan, happens),
        answered=np.where(np.isnan(event), np.nan, ~np.isnan(median)),
        alarm=alarm.astype(float),
        too_soon=np.where(np.isnan(event) & ~np.isnan(high), high < last, np.nan),
    )


def _pinball(missed: Array, q: float) -> Array:
    return np.maximum(q * missed, (q - 1) * missed)


def _measures(part: pd.DataFrame) -> Iterator[tuple[str, str, Any, str]]:
    """Measure, part of the moments, a value for each run, and how runs are put together."""
    if np.isinf(part["last"]).all():  # runs that cannot emerge, or not again
        part = part[part["event"].isna()]
        for name, mine in ((ALL, part), (LATER, part[part["since"] > 0])):
            yield "alarm", name, _by_run(mine, mine["alarm"], "max"), "mean"
            yield "end named", name, _by_run(mine, mine["median"].notna().astype(float), "max"), "mean"
        yield from _reliability(part)
        return
    for column, measure in (("error", "error"), ("error_of_all", "error of all")):
        for name, which in _elapsed(part["elapsed"]):
            yield measure, name, np.expm1(_by_run(part[which], part.loc[which, column], "median")), "median"
    for column in ("answered", "pinball"):
        for name, which in _elapsed(part["elapsed"]):
            yield column, name, _by_run(part[which], part.loc[which, column], "mean"), "mean"
    yield "coverage", ALL, _by_run(part, part["inside"], "mean"), "mean"
    for name, which in _elapsed(part["stated"]):
        yield "coverage", name, _by_run(part[which], part.loc[which, "inside"], "mean"), "mean"
    later = part[part["since"] > 0]
    yield "error", LATER, np.expm1(_by_run(later, later["error"], "median")), "median"
    for measure, column in (("coverage", "inside"), ("answered", "answered")):
        yield measure, LATER, _by_run(later, later[column], "mean"), "mean"
    yield "unlike", ALL, _by_run(part, part["unlike"], "mean"), "mean"
    yield "too soon", ALL, _by_run(part, part["too_soon"], "mean"), "mean"
    yield "lead", ALL, _leads(part), "median"
    yield from _reliability(part)
    for i, ranks in enumerate(_ranks(part), 1):
        yield "rank correlation", f"setting {i}", ranks, "correlation"


def _elapsed(fraction: pd.Series) -> Iterator[tuple[str, pd.Series]]:
    """The moments of each group of fractions elapsed, and from a fraction on."""
    for name, (low, high) in zip(GROUPS, itertools.pairwise(EDGES), strict=True):
        yield name, (fraction > low) & (fraction <= high)
    for name, low in FROM.items():
        yield name, (fraction > low) & (fraction <= 1)


def _by_run(part: pd.DataFrame, values: pd.Series, how: str) -> Array:
    return np.asarray(values.groupby(part["run_id"], sort=False).agg(how).dropna().to_numpy(dtype=float))


def _first_alarms(part: pd.DataFrame) -> pd.DataFrame:
    """The first alarm before each event of each run."""
    return part[(part["alarm"] > 0) & part["event"].notna()].drop_duplicates(["run_id", "since"])


def _leads(part: pd.DataFrame) -> Array:
    first = _first_alarms(part)
    return _by_run(first, 1 - first["elapsed"], "mean")


def _reliability(part: pd.DataFrame) -> Iterator[tuple[str, str, Any, str]]:
    known = part.dropna(subset=["soon", "happens"])
    bins = np.minimum((known["soon"] * BINS).astype(int), BINS - 1)
    for i in range(BINS):
        mine = known[bins == i]
        name = f"{i / BINS:.0%}-{(i + 1) / BINS:.0%}"
        yield "stated", name, _by_run(mine, mine["soon"], "mean"), "mean"
        yield "happened", name, _by_run(mine, mine["happens"], "mean"), "mean"


def _ranks(part: pd.DataFrame) -> Iterator[Array]:
    """For each setting with enough runs: the step stated at the first alarm, and that of the first event, (2, runs)."""
    first = _first_alarms(part).drop_duplicates("run_id")
    first = first.assign(said=first["median"].fillna(first["step"]))
    for _, rows in first.groupby("setting", sort=False):
        if len(rows) >= LEAST_RUNS:
            yield rows[["said", "event"]].to_numpy(dtype=float).T


def paired_ranks(answers: pd.DataFrame, ours: str, rule: str) -> list[Score]:
    """How well two entrants rank the first events of runs, each at the moment when `rule` first answers before one:
    Spearman's correlation over runs of one setting, mean over settings; then the difference, over the same resampled
    runs. Silence of `ours` counts as twice the present step."""
    said = {name: answers[answers["entrant"] == name].set_index(["run_id", "step"]) for name in (ours, rule)}
    asked = said[rule].dropna(subset=["median", "event"]).reset_index()
    first = asked.drop_duplicates("run_id").set_index(["run_id", "step"])
    mine = said[ours].loc[first.index, "median"].fillna(2 * first.index.to_frame()["step"])
    steps = np.array([mine, first["median"], first["event"]], dtype=float)
    rng, settings = np.random.default_rng(SEED), first["setting"].to_numpy()
    parts = [np.flatnonzero(settings == name) for name in dict.fromkeys(settings)]
    resampled = [runs[rng.integers(len(runs), size=(RESAMPLES, len(runs)))] for runs in parts]
    found = {}
    for name, row in ((ours, 0), (rule, 1)):
        values, again = (
            np.mean([_correlation(steps[[row, 2]][..., runs]) for runs in chosen], axis=0)
            for chosen in (parts, resampled)
        )
        found[name] = (values, again)
    found[f"{ours} less {rule}"] = tuple(np.subtract(*pair) for pair in zip(found[ours], found[rule], strict=True))
    return [
        Score(name, ALL, "rank correlation at the rule's lead", ALL, float(value), *_interval(again), len(first))
        for name, (value, again) in found.items()
    ]


def _interval(resampled: Array) -> tuple[float, float]:
    """Of the values of resampled runs."""
    if not np.isfinite(resampled).any():
        return np.nan, np.nan
    low, high = np.nanquantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _score(entrant: str, name: str, measure: str, part: str, values: Array, how: str) -> Score:
    runs = values.shape[-1]
    if not runs:
        return Score(entrant, name, measure, part, np.nan, np.nan, np.nan, 0)
    chosen = np.random.default_rng(SEED).integers(runs, size=(RESAMPLES, runs))
    put_together = {"median": _median, "mean": _mean, "correlation": _correlation}[how]
    value, again = put_together(values), put_together(values[..., chosen])
    return Score(entrant, name, measure, part, float(value), *_interval(again), runs)


def _median(values: Array) -> Any:
    return np.median(values, axis=-1)


def _mean(values: Array) -> Any:
    return np.mean(values, axis=-1)


def _correlation(pairs: Array) -> Any:
    """Spearman's, along the last axis; NaN where one of the two does not vary."""
    ranks = rankdata(pairs, axis=-1)
    said, true = ranks - ranks.mean(-1, keepdims=True)
    size = np.sqrt((said**2).sum(-1) * (true**2).sum(-1))
    return np.where(size > 0, (said * true).sum(-1) / np.where(size > 0, size, 1.0), np.nan)
