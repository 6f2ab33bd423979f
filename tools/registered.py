"""Test the forecaster on runs that did not exist when it was frozen: list them, freeze, train, score once.

    python tools/registered.py list                              groups, runs, predicted hours: results/fresh-runs.csv
    python tools/registered.py freeze                            write results/registration.json, to be committed
    python tools/registered.py train --store DIR --minutes 140   from a worktree of that commit, as `make runs` does
    python tools/registered.py score --store DIR                 from the same worktree: results/registered.csv

What is frozen: the models, all code of `unstuck.forecast`, the list of moments, the scorer, the runs that the law of
sizes is fitted to, what is left out, and the fresh runs with their budgets. `score` refuses where any of these differs,
where a run is missing, and where a table is there already. The first freeze counts.
"""

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import negative_controls
import numpy as np
import pandas as pd
import results
from fresh_runs import NEVER, RANDOM_TOKENS, fresh_runs

from unstuck.errors import BadInput
from unstuck.forecast import Outcome, benchmark, scoring
from unstuck.forecast.benchmark import Benchmark, Split
from unstuck.forecast.entrants import (
    Entrant,
    Fits,
    LossLine,
    PreviousToken,
    ProgressLaw,
    SizesLaw,
    SurvivalModel,
    TwiceElapsed,
)
from unstuck.forecast.features import KINDS
from unstuck.forecast.model import Models, shipped
from unstuck.forecast.runs import CONTROL, MeasuredRun, finished_runs
from unstuck.forecast.scoring import ALL, Row, Score
from unstuck.papers.lab import TieredRun
from unstuck.papers.provenance import provenance
from unstuck.runner.cost import predicted_cost
from unstuck.store.store import Store

FILE, TABLE = results.RESULTS / "registration.json", results.RESULTS / "registered.csv"
LISTED = results.RESULTS / "fresh-runs.csv"
EXCLUDED = "runs without a moment at which an event lies ahead: they diverged, or their loss never stood at a level"
MODEL, RULE = "survival model", PreviousToken.name


@dataclass(frozen=True)
class Registration:
    """What is fixed before the fresh runs are trained."""

    commit: str
    date: str
    models: dict[str, str]  # digest of each kind of evidence
    code: str  # digest of the forecaster's files
    moments: int  # version of the list of moments
    scorer: int  # version of the measures
    law: str  # digest of the ids of the runs that the law of sizes is fitted to
    excluded: str
    random_tokens: list[int]  # first and last seed
    runs: list[dict[str, Any]]  # id, group, steps at most

    @classmethod
    def of_now(cls) -> "Registration":
        about = provenance()
        groups = fresh_runs()
        return cls(
            commit=str(about["commit"]),
            date=about["date"],
            models={name: model.digest for name, model in shipped().items()},
            code=_digest(
                path.read_text(encoding="utf-8") for path in sorted(Path(benchmark.__file__).parent.glob("*.py"))
            ),
            moments=benchmark.VERSION,
            scorer=scoring.VERSION,
            law=_digest(run.path.name for run in Store(results.STORE)),
            excluded=EXCLUDED,
            random_tokens=[RANDOM_TOKENS[0], RANDOM_TOKENS[-1]],
            runs=[
                {"id": run.spec.run_id, "group": name, "steps": run.spec.train.max_steps}
                for name, runs in groups.items()
                for run in runs
            ],
        )

    def differences(self, other: "Registration") -> list[str]:
        """What is not the same, but for commit and date."""
        mine, theirs = asdict(self), asdict(other)
        return [name for name in mine if name not in ("commit", "date") and mine[name] != theirs[name]]


def _digest(parts: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def freezes(file: Path) -> list[Registration]:
    """All that were ever made, the first one first."""
    return [Registration(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))] if file.is_file() else []


def freeze(file: Path = FILE) -> Registration:
    """Register what is here now."""
    now, lacking = (
        Registration.of_now(),
        [name for name, kind in KINDS.items() if not kind.blind and name not in shipped()],
    )
    if freezes(file):
        raise BadInput("the registration", str(file.name), "absent: the first freeze counts")
    if lacking:
        raise BadInput("the models", ", ".join(shipped()), f"fitted to {', '.join(lacking)} too: tools/calibrate.py")
    if there := stored_ids() & {run["id"] for run in now.runs}:
        raise BadInput("the fresh runs", ", ".join(sorted(there)), "without runs of results/store")
    if not now.commit.isalnum():
        raise BadInput("the commit", now.commit, "one without local changes")
    file.write_text(json.dumps([asdict(now)], indent=1) + "\n", encoding="utf-8")
    return now


def stored_ids() -> set[str]:
    return {run.path.name for run in Store(results.STORE)}


def registered(file: Path = FILE) -> Registration:
    """The first freeze, if everything is as it was then."""
    found = freezes(file)
    if not found:
        raise BadInput("the registration", "missing", f"{file.name}, which `python tools/registered.py freeze` writes")
    if changed := found[0].differences(Registration.of_now()):
        raise BadInput(
            "what is frozen", ", ".join(changed), f"as in the commit that added {file.name}; use a worktree of it"
        )
    return found[0]


# -- scores


class FrozenModel(SurvivalModel):
    """The models that the package ships, whatever it is fitted on."""

    def __init__(self, name: str, law: SizesLaw | None = None) -> None:
        super().__init__(name, Fits(), law)

    def models(self, kind: str, task: str) -> Models | None:
        return shipped().get(kind)


@dataclass(frozen=True)
class FreshBenchmark(Benchmark):
    """All `runs` are judged, in the groups they are registered in; what is fitted is fitted on `extra`."""

    groups: Mapping[str, str]

    def splits(self) -> Iterator[Split]:
        yield Split(self.extra, self.runs, lambda run: self.groups[run.run_id])


def answers(runs: list[MeasuredRun], fitted: list[MeasuredRun], groups: Mapping[str, str]) -> pd.DataFrame:
    """What the entrants say of the fresh runs."""
    law = SizesLaw()
    asked: list[Entrant] = [TwiceElapsed(), LossLine(), PreviousToken(), ProgressLaw(), law]
    asked += [FrozenModel(MODEL), FrozenModel(f"{MODEL} and law", law)]
    known = [replace(run, family=CONTROL) if groups[run.run_id] == NEVER else run for run in runs]
    return FreshBenchmark(known, [], fitted, groups).answers(asked)


class Line(NamedTuple):
    """A number of "Done when", and what it has to be."""

    what: str
    group: str
    measure: str
    part: str = ALL
    least: float = -math.inf
    most: float = math.inf
    runs: int = 0  # below so many, no verdict


FEW = ("regression, larger sizes", "regression, p > 0", "recall", "recall, layer norm", "MQAR, layer norm", "text")
COVERED = {"measure": "coverage", "least": 0.7, "most": 0.9, "runs": 60}
LINES = (
    Line("regression: error from 30%", "regression", "error", "from 30%", most=0.06),
    Line("regression: error from 15%", "regression", "error", "from 15%", most=0.12),
    Line("regression: 80% interval holds", "regression", **COVERED),  # type: ignore[arg-type]
    Line("larger sizes: error from 30%", "regression, larger sizes", "error", "from 30%", most=0.1),
    Line("p > 0: error from 30%", "regression, p > 0", "error", "from 30%", most=0.12),
    Line("recall: error from a third", "recall", "error", "from a third", most=0.15),
    Line("recall, layer norm: error from a third", "recall, layer norm", "error", "from a third", most=0.15),
    Line("recall, layer norm: said to be unlike", "recall, layer norm", "unlike"),
    *(Line(f"{name}: 80% interval holds", name, **COVERED) for name in FEW),  # type: ignore[arg-type]
    Line("cannot emerge: alarms", NEVER, "alarm", most=0.02),
    Line("cannot emerge: ends named", NEVER, "end named", most=2 / 60),
    Line("happened where less than 10% was stated", ALL, "happened", "0%-10%", most=0.1),
    Line("happened where more than 90% was stated", ALL, "happened", "90%-100%", least=0.85),
)


def table(said: pd.DataFrame, random_tokens: int) -> pd.DataFrame:
    """The lines of "Done when" by the survival model, then all scores; `random_tokens` is how many of those curves had
    an end."""
    found = scoring.scores(said)
    mine, rows = Row(MODEL, found), []
    for line in LINES:
        place = line.group, line.measure, line.part
        rows.append(_row(line, *mine.numbers(*place), mine.runs(*place)))
    text = said[said["group"] == "text"]
    ranks = scoring.paired_ranks(text, MODEL, RULE) if text["event"].notna().any() else []
    for score, least in zip(ranks, (0.9, -math.inf, 0.0), strict=False):
        line = Line(f"text: rank correlation, {score.entrant}", "text", score.measure, least=least)
        judged = score.low if score.entrant.startswith(f"{MODEL} less") else score.value
        rows.append(_row(line, score.value, score.low, score.high, score.runs, judged))
    line = Line("random tokens: curves with an end", "random tokens", "end named", most=0.0)
    rows.append(_row(line, random_tokens, math.nan, math.nan, len(RANDOM_TOKENS)))
    return pd.concat([pd.DataFrame(rows), found], ignore_index=True)


def _row(line: Line, value: float, low: float, high: float, runs: int, judged: float | None = None) -> dict[str, Any]:
    """A line with its verdict; of a difference, its lower bound is judged."""
    judged = value if judged is None else judged
    known = runs >= max(line.runs, 1) and not np.isnan(judged) and (line.least, line.most) != (-math.inf, math.inf)
    met = ("yes" if line.least <= judged <= line.most else "no") if known else "no verdict"
    aim = {"at least": line.least, "at most": line.most, "met": met}
    score = Score(MODEL, line.group, line.measure, line.part, value, low, high, runs)._asdict()
    return {"line": line.what, **aim, **score}


def score(store: Store, file: Path = FILE, out: Path = TABLE) -> pd.DataFrame:
    """The table that counts, made once."""
    frozen = registered(file)
    if out.exists():
        raise BadInput("the table", out.name, "absent: fresh runs are scored once")
    if missing := sum(map(len, results.left(list(chain(*fresh_runs().values())), store))):
        raise BadInput("the fresh runs", f"{missing} unfinished", "all finished; `train` goes on with them")
    groups = {run["id"]: run["group"] for run in frozen.runs}
    fresh = [run for run in finished_runs(store) if run.run_id in groups]
    said = answers(fresh, list(finished_runs(Store(results.STORE))), groups)
    ends = sum(any(f.outcome is Outcome.EMERGES for f in negative_controls.forecasts(seed)) for seed in RANDOM_TOKENS)
    found = table(said, ends).assign(registration=frozen.commit)
    found.to_csv(out, index=False, float_format="%.6g")
    return found


def listed() -> pd.DataFrame:
    """Runs and predicted hours of each group, and of all."""
    rows = []
    for name, runs in fresh_runs().items():
        hours = [predicted_cost(run.spec).seconds / 3600 for run in runs]
        rows.append({"group": name, "runs": len(runs), "hours": sum(hours), "longest": max(hours)})
    found = pd.DataFrame(rows)
    total = {
        "group": ALL,
        "runs": found["runs"].sum(),
        "hours": found["hours"].sum(),
        "longest": found["longest"].max(),
    }
    return pd.concat([found, pd.DataFrame([total])], ignore_index=True).round(2)


def train(groups: dict[str, list[TieredRun]], store: Path, minutes: float, workers: int) -> None:
    registered()
    store.mkdir(parents=True, exist_ok=True)
    results.train(groups, Store(store), [], minutes, workers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "freeze", "train", "score"])
    parser.add_argument("--store", type=Path, metavar="DIR", help="where the fresh runs are, outside every checkout")
    parser.add_argument("--minutes", type=float, default=140.0)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.what == "list":
        found = listed()
        found.to_csv(LISTED, index=False)
        print(found.to_string(index=False))
    elif arguments.what == "freeze":
        print(f"registered at commit {freeze().commit}; commit {FILE.name}")
    elif arguments.store is None or results.ROOT in arguments.store.resolve().parents:
        parser.error("--store: a directory outside this checkout")
    elif arguments.what == "train":
        train(fresh_runs(), arguments.store, arguments.minutes, arguments.workers)
    else:
        print(score(Store(arguments.store)).dropna(subset=["line"]).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
