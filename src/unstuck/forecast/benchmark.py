"""The benchmark of forecasters: which runs are forecast at which steps, by whom, fitted on what.

A run is forecast at the moments of `runs.moments`, which no outcome decides. Sizes are left out in folds: an entrant is
fitted on runs of other sizes than those that it is judged on. `LARGER` asks more: it is fitted on small sizes only.
`OTHER_TASK` asks most: it is fitted without the run's task, of which it is told nothing.
Curves that only drift are drawn with another seed than those that entrants may be fitted on. How answers are scored is
in `scoring.py`.
"""

import hashlib
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.columns import renamed
from unstuck.errors import BadInput
from unstuck.store.store import Store

from .entrants import Entrant, Prediction, RunUntilNow, entrants
from .features import KINDS, Evidence, available
from .fitting import FOLDS, fold
from .runs import FLOOR, NEVER, STRANGER, MeasuredRun, controls, drifting, finished_runs, moments, strangers
from .scoring import ALL, OTHER_NEVER, OTHER_TASK, Score, scores

VERSION = 2  # of the list of moments and of the folds; raised when either changes for runs that were in it
DRIFT_JUDGED, DRIFT_FITTED = (200, 2), (250, 1)  # simulated curves that only drift: how many, and the seed
#: Beside the store.
CONTROLS, STRANGERS, SHIPPED = "negative_controls.csv", "strangers.csv.gz", "forecast-shipped.csv"
OTHERS_MODELS = "encoders that are not ours"
LARGER = "regression, larger sizes"
LARGE = {"d": 64, "T": 128, "B": 8}  # from which on a regression run is larger by a factor of two than those fitted on
TASKS = {"single_location": "regression", "mqar": "MQAR and induction heads", "markov": "Markov chains"}
TASKS |= {"induction_heads": TASKS["mqar"]}
MOMENT = ["run_id", "since", "step", "event"]


@dataclass(frozen=True)
class Split:
    """Runs to fit on, and others to judge on."""

    fitted: list[MeasuredRun]
    judged: list[MeasuredRun]
    group: Callable[[MeasuredRun], str]
    told: bool = True  # do entrants know settings and task of the runs?


@dataclass(frozen=True)
class Benchmark:
    """The runs, and the moments at which each is forecast."""

    runs: list[MeasuredRun]  # judged by sizes left out
    others: list[MeasuredRun]  # only judged
    extra: list[MeasuredRun]  # only fitted on

    @classmethod
    def of(cls, store: Path) -> "Benchmark":
        """All runs of a store, the runs beside it that cannot emerge, and curves that only drift."""
        runs = list(finished_runs(Store(store)))
        if (file := store.parent / CONTROLS).is_file():
            runs += controls(renamed(pd.read_csv(file), "run"))
        if (file := store.parent / STRANGERS).is_file():
            runs += strangers(pd.read_csv(file))
        return cls(runs, list(drifting(*DRIFT_JUDGED)), list(drifting(*DRIFT_FITTED)))

    @cached_property
    def moments(self) -> pd.DataFrame:
        """A row for each run and moment: the step that it is counted from, the step, that of the event (NaN if it never
        came), and the last one of the run (infinite if it cannot emerge, or not again)."""
        rows = []
        for run in [*self.runs, *self.others]:
            last = math.inf if run.family in NEVER else float(run.curve.steps.max())
            for step, seen, event in moments(run, KINDS[kind]) if (kind := _kind(run)) else ():
                rows.append((run.run_id, seen.since, step, math.nan if event is None else event, last))
        return pd.DataFrame(rows, columns=[*MOMENT, "last"])

    @property
    def digest(self) -> str:
        """Names the list of moments."""
        lines = (
            f"{run_id},{since:.6g},{step:.6g},{event:.6g}\n"
            for run_id, since, step, event in self.moments[MOMENT].to_numpy()
        )
        return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:12]

    def splits(self) -> Iterator[Split]:
        for i in range(FOLDS):
            fitted = [run for run in self.runs if fold(run.size) != i]
            judged = [run for run in [*self.runs, *self.others] if fold(run.size) == i]
            yield Split([*fitted, *self.extra], judged, group)
        small = [run for run in self.runs if not _is_larger(run)]
        larger = [run for run in self.runs if _is_larger(run) and group(run) == "regression" and run.is_standard]
        yield Split([*small, *self.extra], larger, lambda _: LARGER)
        for part in sorted({_part(run) for run in [*self.runs, *self.others]}):
            rest = [run for run in self.runs if _part(run) != part]
            mine = [run for run in [*self.runs, *self.others] if _part(run) == part and run.family != FLOOR]
            yield Split([*rest, *self.extra], mine, lambda r: OTHER_NEVER if r.family in NEVER else OTHER_TASK, False)

    def answers(
        self, asked: Sequence[Entrant], progress: Callable[[int, int], None] = lambda done, of: None
    ) -> pd.DataFrame:
        """What each entrant says at each moment: the columns of `moments`, entrant, group, setting and `Prediction`."""
        rows: list[dict[str, Any]] = []
        done, splits = 0, list(self.splits())
        times = dict(iter(self.moments.groupby("run_id")))
        of = sum(run.run_id in times for split in splits for run in split.judged)
        for split in splits:
            for entrant in asked if split.judged else ():
                if hasattr(entrant, "fit"):
                    entrant.fit(split.fitted)
            for run in (run for run in split.judged if run.run_id in times):
                rows += _answers(run, times[run.run_id], asked, split.group(run), told=split.told)
                progress(done := done + 1, of)
        return pd.DataFrame(rows)


def _answers(
    run: MeasuredRun, times: pd.DataFrame, asked: Sequence[Entrant], name: str, *, told: bool
) -> Iterator[dict[str, Any]]:
    """The answers on one run. An entrant sees neither later rows nor how the run ended."""
    known = {k: v for k, v in run.settings.items() if k != "status"}
    setting = f"{run.family} {sorted((k, str(v)) for k, v in known.items() if k != 'seed')}"
    about = {"group": name, "setting": setting}
    evidence = Evidence.of(run.curve, KINDS[_kind(run)])
    for question in times.to_dict("records"):
        step = question["step"]
        curve, here = run.curve.truncate(step), evidence.from_step(question["since"]).until(step)
        seen = RunUntilNow(run.run_id, *((run.family, known) if told else ("", {})), curve, here)
        for entrant in asked:
            yield {
                "entrant": entrant.name,
                **about,
                **question,
                **_checked(entrant, entrant.predict(seen, curve, step)),
            }


def _kind(run: MeasuredRun) -> str:
    """The best kind of evidence that a run has; empty if it has none."""
    return next(iter(available(run.curve)), "")


def _checked(entrant: Entrant, said: Any) -> dict[str, float]:
    """An answer as numbers, None as NaN."""
    try:
        values = [math.nan if x is None else float(x) for x in said]
        return Prediction(*values)._asdict()
    except (TypeError, ValueError) as e:
        raise BadInput(f"the answer of {entrant.name}", said, "a Prediction(median, low, high, soon)") from e


def group(run: MeasuredRun) -> str:
    """The group of runs that a run is judged with."""
    task, *rest = run.family.split(", ")
    if task.startswith(STRANGER):
        return OTHERS_MODELS
    name = TASKS.get(task, task)
    if list(TASKS.values()).count(name) > 1:  # few runs
        return name
    sgd = ["SGD"] if run.settings.get("optim") == "sgd" else []
    return ", ".join([name, *("p > 0" if part == "repeated" else part for part in rest), *sgd])


def _part(run: MeasuredRun) -> str:
    """What is left out together where no task is told: a task, or a sixth of the runs that cannot emerge."""
    return str(fold(run.size)) if run.family in NEVER else run.task


def _is_larger(run: MeasuredRun) -> bool:
    sizes = run.settings
    large = any((sizes.get(name) or 0) >= least for name, least in LARGE.items()) or bool(sizes.get("p"))
    return run.family.startswith("single_location") and large


def results(
    store: Path, more: Sequence[Entrant] = (), progress: Callable[[int, int], None] = lambda done, of: None
) -> pd.DataFrame:
    """The scores of all entrants on a store. The first row says how many moments there are, and names their list."""
    benchmark = Benchmark.of(store)
    found = scores(benchmark.answers([*entrants(store.parent / SHIPPED), *more], progress))
    runs = benchmark.moments["run_id"].nunique()
    name = f"version {VERSION}, digest {benchmark.digest}"
    about = Score("", ALL, "moments", name, len(benchmark.moments), math.nan, math.nan, runs)
    return pd.concat([pd.DataFrame([about]), found], ignore_index=True)


def load_entrant(name: str) -> Entrant:
    """An instance of the class `module:Class`; the module may lie in the working directory."""
    module, _, kind = name.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), kind)()
    except (ImportError, AttributeError, TypeError, ValueError) as e:
        raise BadInput("--entrant", name, f"a module and a class without arguments, module:Class ({e})") from e
    finally:
        sys.path.remove("")
    if not (isinstance(getattr(found, "name", None), str) and callable(getattr(found, "predict", None))):
        raise BadInput("--entrant", name, "a class with a name and predict(run, curve, now)")
    return found
