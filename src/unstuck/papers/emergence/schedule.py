"""schedule: repeat data only while the learner is stuck (DiversitySchedule), against fixed repetition and none.

Steps until a run has learnt clean data (regression: loss 0.1, recall: 90% accuracy). The schedule detects the plateau,
repeats, detects the transition, and stops repeating. It repeats half of the data or one copy more; the amount is not
tuned. The paper's discussion proposes such a schedule and has no figure of it. Claims also give the step at which the
plateau is left (loss 0.4, 50% accuracy), and how many heads attend to the relevant token by then. Dots are seeds; an
open triangle is a run that had not learnt when it was stopped. Shaded: where the schedule of the first seed repeats.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unstuck.columns import CLEAN_ACCURACY, CLEAN_LOSS, EVALUATED, REPETITION
from unstuck.curve import Curve
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, curves, grid
from unstuck.papers.style import BLACK, BLUE, GREEN, ORANGE, RED

from ._recall import SMALL, UNTIL_90, step_list

IN_PARTS = True  # a case can be drawn before the others are done, and before all fixed repetitions are
SEEDS, TIER = [0, 1, 2], 2
MOST = {"p": 0.5, "B": 1.0}  # by how much the schedule repeats: half of the data, one copy more
LEFT = {CLEAN_LOSS: 0.4, CLEAN_ACCURACY: 0.5}  # where the plateau is left; the rest is learnt later
SETTLED, WINDOW = 150, 350  # steps after which a run that has learnt is measured once more, and for how many
UNTIL = {"learnt": "steps", "the plateau is left": "left"}  # what steps are counted to: the column of a summary
COLOURS = {"none": BLACK, "best fixed": BLUE, "strongest fixed": ORANGE, "schedule": RED, "fixed": GREEN}


@dataclass(frozen=True)
class Case:
    """A task that is learnt without repetition, with a fixed one of several strengths, and with the schedule."""

    source: str
    sizes: dict[str, Any]
    key: str  # what is repeated: p or B
    fixed: Sequence[float]  # weakest first, the last one too strong
    max_steps: int
    after: int = 500
    until: int = 0  # steps of the scheduled runs, if they are to be seen where those without repetition end
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.source}, " + ", ".join(f"{k.removeprefix('task.')} = {v}" for k, v in self.sizes.items())

    @property
    def none(self) -> float:
        return 0.0 if self.key == "p" else 1.0

    @property
    def measure(self) -> str:
        return CLEAN_LOSS if self.source == "regression" else CLEAN_ACCURACY

    def runs(self, seeds: Sequence[int]) -> dict[str, list[TieredRun]]:
        """The runs by the way they are trained."""
        thresholds = [0.4, 0.1] if self.source == "regression" else UNTIL_90
        base = {**self.more, **self.sizes, "train.thresholds": thresholds}
        base |= {"train.max_steps": self.max_steps, "train.after": self.after}
        found = {
            "none" if value == self.none else f"{self.key} = {value:g}": grid(
                self.source, TIER, seeds, {**base, f"task.{self.key}": value}
            )
            for value in (self.none, *self.fixed)
        }
        adaptive = {**base, "schedule.name": "adaptive", "schedule.key": self.key, "schedule.most": MOST[self.key]}
        return {**found, "schedule": grid(self.source, TIER, seeds, adaptive)}


CASES: dict[Profile, list[Case]] = {
    "quick": [
        Case("regression", {"task.T": 8, "task.d": 8}, "p", [0.2], 300, after=0),
        Case("recall", {"task.tokens": 12, "task.pairs": 3}, "B", [2], 200, after=0, more=SMALL),
    ],
    "cpu": [
        Case("regression", {"task.T": 64, "task.d": 64}, "p", [0.1, 0.2, 0.4, 0.8], 5000, until=4750),
        Case("recall", {"task.tokens": 64, "task.pairs": 8}, "B", [1.5, 2, 4], 15_000, until=7250),
        Case("recall", {"task.tokens": 128, "task.pairs": 8}, "B", [2, 4], 30_000, until=10_250),
    ],
    "paper": [
        Case("regression", {"task.T": 256, "task.d": 128}, "p", [0.1, 0.2, 0.4, 0.8], 100_000),
        Case("recall", {"task.tokens": 256, "task.pairs": 32}, "B", [1.5, 2, 4, 8], 300_000, after=5000),
    ],
}


def runs(profile: Profile) -> list[TieredRun]:
    """What `data` takes; and the scheduled runs for longer, to measure them when runs without repetition have learnt as
    well."""
    found = []
    for case in CASES[profile]:
        ways = _ways(case, profile)
        longer = [_until(run, case.until) for run in ways["schedule"]] if case.until else []
        found += [run for way in ways.values() for run in way] + longer
    return found


def _until(run: TieredRun, step: int) -> TieredRun:
    return run._replace(spec=replace(run.spec, train=replace(run.spec.train, at_least=step)))


def _ways(case: Case, profile: Profile) -> dict[str, list[TieredRun]]:
    return case.runs([0] if profile == "quick" else SEEDS)


def data(done: Finished) -> pd.DataFrame:
    """The curves of every case for which the schedule and no repetition are complete, with those fixed repetitions that
    are: the measure on clean data, and how much was repeated."""
    if done.results.empty:
        return done.results
    results = done.results.drop_duplicates("run_id").set_index("run_id")  # scheduled runs are asked for twice
    parts = []
    for case in CASES[done.profile]:
        ways = _ways(case, done.profile)
        found = {way: results.loc[results.index.isin([r.spec.run_id for r in mine])] for way, mine in ways.items()}
        complete = [way for way, mine in ways.items() if len(found[way]) == len(mine)]
        if {"none", "schedule"} <= set(complete):
            until = _ends(found["none"], case).groupby(found["none"]["seed"]).max()
            parts += [_measured(case, way, curves(ways[way], done.store), found[way], until) for way in complete]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _measured(case: Case, way: str, table: pd.DataFrame, results: pd.DataFrame, ends: pd.Series) -> pd.DataFrame:
    """What is drawn of the curves of one way, as far as `_ends`, since other figures may have wanted some of these runs
    for longer; scheduled ones also as far as those without repetition of their seed, `ends`."""
    until = table["run_id"].map(_ends(results, case))
    if way == "schedule":
        until = np.maximum(until, table["seed"].map(ends))
    crossed = results.get(f"crossing_{LEFT[case.measure]:g}", pd.Series(dtype=float))
    table = table.assign(
        learnt=table["run_id"].map(results["plateau_steps"]).astype(float),
        left=table["run_id"].map(crossed).astype(float),
    )[table["step"] <= until]
    named = {"case": case.name, "measure": case.measure, "way": way, "seed": table["seed"]}
    measured = {"step": table["step"], "value": table[case.measure].round(5), EVALUATED: table[EVALUATED]}
    measured |= {REPETITION: table.get(REPETITION, 0.0), "heads": _attending(table)}
    return pd.DataFrame({**named, **measured, **table[["left", "learnt", "run_id"]]})


def _ends(done: pd.DataFrame, case: Case) -> pd.Series:
    """The last steps of runs that are drawn: some after they have learnt."""
    return np.ceil(done["plateau_steps"].astype(float) + case.after).clip(upper=case.max_steps).fillna(case.max_steps)


def _attending(table: pd.DataFrame) -> pd.Series:
    """How many heads give the relevant tokens most of their attention."""
    return pd.Series((Curve.of(table).flat("attention") > 0.5).sum(1), index=table.index)


@once
def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each run: steps until it has learnt and until it had left the plateau (infinite: not), its last step,
    the measure from SETTLED steps after that on, or else at its end (`final`), and where the run without repetition of
    the same seed ends (`then`), if it went on so long; and the heads that had found the relevant token when the plateau
    was left."""
    none = table[table["way"] == "none"].groupby(["case", "seed"])["step"].max()
    rows = []
    for keys, run in table.groupby(["case", "measure", "way", "seed"], sort=False):
        learnt, left = run["learnt"].iloc[0], run["left"].iloc[0]
        row = dict(zip(("case", "measure", "way", "seed"), keys, strict=True))
        row |= {"steps": np.inf if np.isnan(learnt) else learnt, "last": run["step"].max()}
        row |= {
            "left": np.inf if np.isnan(left) else left,
            "heads": run.loc[run["step"] >= left, "heads"].head(1).max(),
        }
        same = none.get((row["case"], row["seed"]), np.nan)
        row |= {"final": _mean(run, learnt + SETTLED, learnt + WINDOW + SETTLED + 1), "then": np.nan}
        if run["step"].max() >= same - WINDOW:  # rows stand apart
            row["then"] = _mean(run, same - WINDOW, same)
        rows.append(row)
    return pd.DataFrame(rows)


def _mean(run: pd.DataFrame, low: float, high: float) -> float:
    """The measure over all sequences that it was evaluated on between two steps, or else in the last row."""
    part = run[run["step"].between(low, high)]
    part = part if len(part) else run.tail(1)
    return float(np.average(part["value"], weights=part[EVALUATED]))


def roles(found: pd.DataFrame, column: str = "steps") -> dict[str, str]:
    """Which way is the best fixed repetition (most seeds that get there, then the mean), if any gets there, and which
    the strongest."""
    fixed = [way for way in found["way"].unique() if way not in ("none", "schedule")]
    there = [way for way in fixed if np.isfinite(found.loc[found["way"] == way, column]).any()]
    best = sorted(there, key=lambda way: _rank(found.loc[found["way"] == way, column]))[:1]
    names = dict.fromkeys(fixed, "fixed") | dict.fromkeys(fixed[-1:], "strongest fixed")
    return {"none": "none", **names, **dict.fromkeys(best, "best fixed"), "schedule": "schedule"}


def _rank(steps: pd.Series) -> tuple[float, float]:
    return float(np.isinf(steps).sum()), float(steps.replace(np.inf, np.nan).mean())


def draw(table: pd.DataFrame) -> Figure:
    cases = list(table["case"].unique())
    shape = (2, len(cases)) if len(cases) > 1 else (1, 2)  # curves above steps, or beside them
    picture = Figure(figsize=(4.4 * shape[1], 3.2 * shape[0]), layout="constrained")
    axes = picture.subplots(*shape, squeeze=False).reshape(2, len(cases))
    found = summary(table)
    for column, case in enumerate(cases):
        mine, rows = table[table["case"] == case], found[found["case"] == case]
        _curves(axes[0, column], mine, roles(rows))
        axes[0, column].set_title(case)
        _steps(axes[1, column], rows, roles(rows))
    return picture


def _curves(ax: Axes, table: pd.DataFrame, role: dict[str, str]) -> None:
    """The first seed of none, the best and the strongest fixed repetition, and the schedule."""
    first = table[table["seed"] == table["seed"].min()]
    for way, run in first.groupby("way", sort=False):
        if role[str(way)] == "fixed":
            continue
        ax.plot(run["step"], run["value"], color=COLOURS[role[str(way)]], lw=1.4, label=way)
        if way == "schedule":
            repeats = run[REPETITION].to_numpy() > 0
            ax.fill_between(
                run["step"], 0, 1, where=repeats.tolist(), step="post", color=RED, alpha=0.12, lw=0,
                transform=ax.get_xaxis_transform(),
            )  # fmt: skip
    shown = first[first["way"].map(lambda way: role[way] != "strongest fixed")]  # which may go on for ever
    ax.set_xlim(0, 1.08 * shown["step"].max())
    loss = table["measure"].iloc[0] == CLEAN_LOSS
    ax.axhline(0.1 if loss else 0.9, color="#999999", lw=0.8, ls=":")
    ax.set(xlabel="step", ylabel="loss on clean data" if loss else "accuracy on clean data")
    ax.set_ylim(0, 1.2 if loss else 1.02)
    ax.legend(loc="upper right") if loss else ax.legend(loc="upper left", bbox_to_anchor=(0, 0.86))  # below the line


def _steps(ax: Axes, rows: pd.DataFrame, role: dict[str, str]) -> None:
    """Steps until learnt, a dot for each seed."""
    ways = list(rows["way"].unique())
    for place, way in enumerate(reversed(ways)):
        mine, colour = rows[rows["way"] == way], COLOURS[role[way]]
        there = np.isfinite(mine["steps"])
        ax.plot(mine.loc[there, "steps"], [place] * there.sum(), "o", ms=6, color=colour)
        ax.plot(mine.loc[~there, "last"], [place] * (~there).sum(), ">", ms=7, color=colour, mfc="none")
        if there.all():
            ax.plot([mine["steps"].mean()] * 2, [place - 0.25, place + 0.25], color=colour, lw=2)
    ax.set_yticks(range(len(ways)), list(reversed(ways)))
    furthest = float(np.minimum(rows["steps"], rows["last"]).max())
    ax.set(ylim=(-0.6, len(ways) - 0.4), xlabel="steps until learnt", xlim=(0, 1.06 * furthest))
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.grid(axis="x", color="#E6E6E6", lw=0.6)
    ax.set_axisbelow(True)


def compare(table: pd.DataFrame) -> list[Claim]:
    found, claims = summary(table), []
    for case in found["case"].unique():
        rows = found[found["case"] == case]
        ways = {str(way): part for way, part in rows.groupby("way", sort=False)}
        for what, column in UNTIL.items():
            claims += _speed_claims(case, ways, what, column, roles(rows, column))
        kind = _kind(rows)
        if kind == "loss":  # in recall a head alone does nothing: it takes one that copies
            heads = "; ".join(f"{way}: {_numbers(part.sort_values('seed')['heads'])}" for way, part in ways.items())
            what = f"{case}: heads with most attention on the relevant token then, seeds in order"
            claims.append(Claim(what, heads))
        if {"none", "schedule"} <= set(ways):
            claims += _settled_claims(case, kind, ways["none"], ways["schedule"])
        scheduled = table[(table["case"] == case) & (table["way"] == "schedule")]
        text = "; ".join(_stretches(run) for _, run in scheduled.groupby("seed"))
        if text:
            claims.append(Claim(f"{case}: steps at which the schedule repeats, seeds in order", text))
    return claims


def _kind(rows: pd.DataFrame) -> str:
    return "loss" if rows["measure"].iloc[0] == CLEAN_LOSS else "accuracy"


def _speed_claims(
    case: str, ways: dict[str, pd.DataFrame], what: str, column: str, role: dict[str, str]
) -> list[Claim]:
    """Steps of every way, and how much faster the schedule is than no repetition and than the best fixed one."""
    text = "; ".join(f"{way}: {_listed(part, column)}" for way, part in ways.items())
    claims = [Claim(f"{case}: steps until {what}, seeds in order", text)]
    if not {"none", "schedule"} <= set(ways):
        return claims
    best = next((way for way, name in role.items() if name == "best fixed"), None)
    faster = f"none: {_ratio(ways['none'], ways['schedule'], column)}"
    if best is not None:
        faster += f"; the best fixed ({best}): {_ratio(ways[best], ways['schedule'], column)}"
    elif len(ways) > 2:
        faster += "; of the fixed ones none got there"
    return [*claims, Claim(f"{case}: until {what}, speed-up of the schedule over", faster)]


def _settled_claims(case: str, kind: str, none: pd.DataFrame, schedule: pd.DataFrame) -> list[Claim]:
    """The measure on clean data some steps after each has learnt, and where runs without repetition end."""
    both = {"none": none, "schedule": schedule}
    final = {way: part.loc[np.isfinite(part["steps"]), "final"] for way, part in both.items()}
    ends = ", ".join(f"{way} {_spread(x) if len(x) else 'has not learnt it'}" for way, x in final.items())
    claims = [Claim(f"{case}: clean {kind} from {SETTLED} steps later", ends)]
    then = pd.DataFrame({way: part.set_index("seed")["then"] for way, part in both.items()})
    then = then[np.isfinite(none.set_index("seed")["steps"])].dropna()
    if len(then):
        text = ", ".join(f"{way} {_spread(x)}" for way, x in then.items())
        where = f"where runs without repetition end, {SETTLED + WINDOW} steps after they have learnt"
        claims.append(Claim(f"{case}: clean {kind} {where}", text))
    return claims


def _stretches(run: pd.DataFrame) -> str:
    """From where to where a run repeats, by the rows of its curve."""
    run = run.sort_values("step")
    repeats = run[REPETITION] > 0
    parts = run.loc[repeats, "step"].groupby((~repeats).cumsum()[repeats])
    return " and ".join(f"{part.min():.0f} to {part.max():.0f}" for _, part in parts) or "none"


def overview(table: pd.DataFrame) -> pd.DataFrame:
    """For a page: a row for each way of each case."""
    rows, found = [], summary(table)
    for case in found["case"].unique():
        mine = found[found["case"] == case]
        ways = {str(way): part for way, part in mine.groupby("way", sort=False)}
        for way, part in ways.items():
            row = {"task": case if way == next(iter(ways)) else "", "repetition": way}
            for what, column in reversed(UNTIL.items()):
                row[f"steps until {what}"] = _listed(part, column)
                row[f"speed-up until {what}"] = "1" if way == "none" else _ratio(ways["none"], part, column)
            ends = part.loc[np.isfinite(part["steps"]), "final"]
            of = f" ({len(ends)} of {len(part)} seeds)" if len(ends) < len(part) else ""
            shown = f"{_kind(mine)} {ends.mean():.3f}{of}" if len(ends) else "–"
            rows.append(row | {f"from {SETTLED} steps later, on clean data": shown})
    return pd.DataFrame(rows)


def _spread(values: pd.Series) -> str:
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"


def _numbers(values: pd.Series) -> str:
    return ", ".join("-" if np.isnan(x) else f"{x:.0f}" for x in values)


def _listed(runs: pd.DataFrame, column: str) -> str:
    """Steps of the seeds in their order, `> its last step` for one that has not got there."""
    shown = zip(*runs.sort_values("seed")[[column, "last"]].to_numpy().T, strict=True)
    return ", ".join(step_list([step], float(last)) for step, last in shown)


def _ratio(slow: pd.DataFrame, fast: pd.DataFrame, column: str) -> str:
    """How many times as fast, by the seeds' means in logarithms; by their medians where a seed has not got there. If
    even the median has not, it counts with the steps it had, which makes it a bound."""
    if np.isfinite([*slow[column], *fast[column]]).all():
        return f"{np.exp(np.log(slow[column]).mean() - np.log(fast[column]).mean()):.2f}"
    middles = [float(np.median(runs[column])) for runs in (slow, fast)]
    bounds = tuple(np.isinf(middles))
    if all(bounds):
        return "unknown, since most seeds of both have not got there"
    a, b = (min(middle, runs["last"].median()) for middle, runs in zip(middles, (slow, fast), strict=True))
    sense = {(True, False): "at least ", (False, True): "at most "}.get(bounds, "")
    return f"{sense}{a / b:.2f} (medians)"
