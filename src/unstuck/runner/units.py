"""What a sweep is made of: units of runs, what is left of them to do, and what they came to.

A unit is a run, or several that race each other: they follow one another, and each is stopped once it has trained
longer than the best plateau before it.
"""

import dataclasses
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unstuck.config.load import build_spec
from unstuck.config.run import RunSpec
from unstuck.errors import InvalidCombination
from unstuck.runner.budget import stored_result
from unstuck.runner.cost import predicted_cost, predicted_seconds
from unstuck.runner.execute import Executed, execute
from unstuck.store.store import Store

Unit = Sequence[RunSpec]  # runs that race each other; most often just one
Order = Literal["longest", "given"]
Progress = Callable[[float, float, str], None]  # predicted seconds done, of how many, and a text


@dataclass
class Sweep:
    """What a sweep came to."""

    results: dict[str, Executed] = field(default_factory=dict)  # by run id
    failed: dict[str, str] = field(default_factory=dict)  # run id -> what went wrong
    skipped: int = 0  # runs another process is at, or that there was no time for

    def count(self, status: str) -> int:
        return sum(r.result.status == status for r in self.results.values())

    def as_json(self) -> dict[str, Any]:
        names = ("emerged", "censored", "diverged", "finished")
        counts = {name: self.count(name) for name in names}
        total = len(self.results) + len(self.failed) + self.skipped
        return {"runs": total, **counts, "failed": len(self.failed), "skipped": self.skipped}


def limited(spec: RunSpec, best: float) -> RunSpec:
    """A racer's specification: it need not train longer than the best plateau so far."""
    if math.isinf(best):
        return spec
    steps = min(spec.train.max_steps, math.ceil(best))
    return dataclasses.replace(spec, train=dataclasses.replace(spec.train, max_steps=steps))


def stored_results(unit: Unit, store: Store) -> list[Executed] | None:
    """The results of a race's runs, in order, if it is over; None if something is still to do."""
    results: list[Executed] = []
    best = math.inf
    for spec in unit:
        result = stored_result(store.run(spec.run_id), limited(spec, best))
        if result is None:
            return None
        results.append(Executed(spec.run_id, result, cached=True))
        best = min(best, result.plateau_steps or math.inf)
    return results


def portable(spec: RunSpec) -> RunSpec | dict[str, Any]:
    """What a worker gets: a class from a user's file goes by that file's name, since the worker has not loaded it."""
    return spec.as_dict() if any(n.endswith(".py") for n in (spec.task_name, spec.model_name)) else spec


def work(
    unit: Sequence[RunSpec | dict[str, Any]], path: Path, checkpoint_seconds: float, stop: Callable[[], bool]
) -> list[Executed]:
    """The runs of a unit one after the other, up to one that another process is at or that is stopped."""
    results: list[Executed] = []
    best = math.inf
    for given in unit:
        spec = limited(build_spec(given) if isinstance(given, dict) else given, best)
        done = execute(spec, Store(path), stop=stop, checkpoint_seconds=checkpoint_seconds)
        if done is None or done.result.status == "stopped":
            break
        results.append(done)
        best = min(best, done.result.plateau_steps or math.inf)
    return results


class Agenda:
    """The units of a sweep that are left to do, by their numbers, and what came of those that are done."""

    def __init__(
        self, specs: Sequence[RunSpec | Unit], store: Store, progress: Progress, order: Order = "given"
    ) -> None:
        self.store, self.progress = store, progress
        self.runs = sum(1 if isinstance(s, RunSpec) else len(s) for s in specs)
        self.sweep = Sweep()
        self.todo = self._missing(specs)
        if order == "longest":
            self.todo.sort(key=predicted_seconds, reverse=True)
        self.cost = [predicted_seconds(unit) for unit in self.todo]
        self.done = 0.0  # of the cost

    def _missing(self, specs: Sequence[RunSpec | Unit]) -> list[list[RunSpec]]:
        """What is not done yet, the same run asked for twice only once; what is done goes to the sweep's results."""
        todo: dict[tuple[str, ...], list[RunSpec]] = {}
        for entry in specs:
            unit = [entry] if isinstance(entry, RunSpec) else list(entry)
            stored = stored_results(unit, self.store)
            if stored is not None:
                self.sweep.results |= {done.run_id: done for done in stored}
                continue
            key = tuple(spec.run_id for spec in unit)
            todo[key] = [a.with_budget_of(b) for a, b in zip(todo[key], unit, strict=True)] if key in todo else unit
        return list(todo.values())

    def settle(self, i: int, job: "Future[list[Executed]]") -> None:
        """Take what came of a unit: a run that fails must not stop the others."""
        error = job.exception()
        if isinstance(error, Exception):
            self.give_up(i, "".join(traceback.format_exception_only(error)).strip())
            return
        results = {done.run_id: done for done in job.result()}
        self.sweep.results |= results
        self.sweep.skipped += len(self.todo[i]) - len(results)
        self.done += self.cost[i]

    def give_up(self, i: int, why: str) -> None:
        self.sweep.failed[self.todo[i][0].run_id] = why
        self.sweep.skipped += len(self.todo[i]) - 1
        self.done += self.cost[i]

    def skip(self, numbers: Iterable[int]) -> None:
        self.sweep.skipped += sum(len(self.todo[i]) for i in numbers)

    def report(self, running: Iterable[int]) -> None:
        """Tell `progress` how far the sweep is, those units included that are under way."""
        done = self.done + sum(self._share_done(i) * self.cost[i] for i in running)
        self.progress(done, sum(self.cost), f"{len(self.sweep.results)} of {self.runs} runs")

    def _share_done(self, i: int) -> float:
        """How far a unit is, by its runs' status files; never quite done."""
        steps = sum((self.store.run(spec.run_id).status() or {}).get("step", 0) for spec in self.todo[i])
        return min(0.95, steps / max(1, sum(predicted_cost(spec).steps for spec in self.todo[i])))

    def check_importable(self) -> None:
        """Workers import classes by name; those of a notebook or inside a function have none."""
        parts = (part for unit in self.todo for spec in unit for part in (spec.task, spec.model))
        for value in {type(part): part for part in parts}.values():
            kind = type(value)
            notebook = kind.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
            if notebook or "<locals>" in kind.__qualname__ or hasattr(value, "_module"):
                raise InvalidCombination(
                    f"{kind.__qualname__} lives in this process only, so other processes cannot import it; sweep with "
                    "workers=0, or put it in a file"
                )
