"""Many runs in one store: the product of lists of settings, in local processes, one thread each.

What is finished is not run again; what was stopped goes on. Two sweeps may share a directory: a run's lock decides
who does it.
"""

import itertools
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstuck.errors import BadInput
from unstuck.spec.load import build_spec, merge, parse_overrides, read_source
from unstuck.spec.run import RunSpec

from .cost import predicted_cost
from .execute import CHECKPOINT_SECONDS, enough, execute
from .store import Store

MAX_RUNS = 100_000


def expand(source: str, words: Iterable[str]) -> list[RunSpec]:
    """The specifications of a sweep: "task.T=16,32" stands for both, and all lists are multiplied."""
    choices = []
    for word in words:
        key, equals, values = word.partition("=")
        choices.append([f"{key}{equals}{v}" for v in _split(values)] if equals else [word])
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MAX_RUNS:
        raise BadInput("sweep", f"{count} runs", f"at most {MAX_RUNS}")
    base = read_source(source)
    return [build_spec(merge(base, parse_overrides(words))) for words in itertools.product(*choices)]


def _split(text: str) -> list[str]:
    """Cut at commas outside brackets."""
    pieces, depth = [""], 0
    for c in text:
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += c
    return pieces


@dataclass
class Sweep:
    """What a sweep came to."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)  # by run id
    failed: dict[str, str] = field(default_factory=dict)  # run id -> what went wrong
    skipped: int = 0  # runs another process is at, or that there was no time for

    def count(self, status: str) -> int:
        return sum(r["status"] == status for r in self.results.values())

    def as_json(self) -> dict[str, Any]:
        names = ("emerged", "censored", "diverged", "finished")
        counts = {name: self.count(name) for name in names}
        total = len(self.results) + len(self.failed) + self.skipped
        return {"runs": total, **counts, "failed": len(self.failed), "skipped": self.skipped}


_stop: Any = None  # in a worker: the event that asks it to stop


def _start_worker(stop: Any) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides


def _portable(spec: RunSpec) -> RunSpec | dict[str, Any]:
    """What a worker gets: a task from a user's file goes by that file's name, since the worker has not loaded it."""
    return spec.as_dict() if spec.task_name.endswith(".py") else spec


def _work(given: RunSpec | dict[str, Any], path: Path, checkpoint_seconds: float) -> dict[str, Any]:
    spec = build_spec(given) if isinstance(given, dict) else given
    return execute(spec, Store(path), stop=_stop.is_set, checkpoint_seconds=checkpoint_seconds)


def run_sweep(
    specs: Sequence[RunSpec],
    store: Store,
    *,
    workers: int = 2,
    seconds: float = float("inf"),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Callable[[float, float, str], None] = lambda done, of, text: None,
) -> Sweep:
    """Carry out what is missing of `specs`; stops cleanly after `seconds`, or at an interrupt, and can be taken
    up again. `progress` hears of work in predicted seconds.
    """
    out = Sweep()
    todo: dict[str, RunSpec] = {}
    for spec in specs:
        stored = enough(store.run(spec.run_id).status(), spec)
        if stored is not None:
            out.results[spec.run_id] = {"run_id": spec.run_id, **stored, "cached": True}
        else:
            todo[spec.run_id] = todo[spec.run_id].with_budget_of(spec) if spec.run_id in todo else spec
    if not todo:
        return out

    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    deadline = time.monotonic() + seconds
    cost = {run_id: predicted_cost(spec) for run_id, spec in todo.items()}
    total = sum(c.seconds for c in cost.values())
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(stop,)) as pool:
        waiting = list(todo.items())
        running: dict[Future[dict[str, Any]], str] = {}
        done = 0.0
        try:
            while waiting or running:
                while waiting and len(running) < workers and not stop.is_set():
                    run_id, spec = waiting.pop(0)
                    running[pool.submit(_work, _portable(spec), store.path, checkpoint_seconds)] = run_id
                if not running:
                    break
                finished, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for job in finished:
                    run_id = running.pop(job)
                    done += cost[run_id].seconds
                    _settle(out, run_id, job)
                partial = sum(
                    _share(store, run_id, cost[run_id].steps) * cost[run_id].seconds for run_id in running.values()
                )
                text = f"{len(out.results)} of {len(specs)} runs"
                progress(done + partial, total, text)
                if time.monotonic() > deadline:
                    stop.set()
        except KeyboardInterrupt:
            stop.set()
            for job, run_id in running.items():
                _settle(out, run_id, job)
            out.skipped += len(waiting)
            raise
    out.skipped += len(waiting)
    return out


def _settle(out: Sweep, run_id: str, job: "Future[dict[str, Any]]") -> None:
    try:
        result = job.result()
    except Exception as e:  # a run that fails must not stop the others
        out.failed[run_id] = "".join(traceback.format_exception_only(e)).strip()
        return
    if result["status"] in ("busy", "stopped"):
        out.skipped += 1
    else:
        out.results[run_id] = result


def _share(store: Store, run_id: str, steps: int) -> float:
    """How far a run is, by its status file; never quite done."""
    try:
        status = store.run(run_id).status() or {}
    except OSError:
        status = {}
    return min(0.95, status.get("step", 0) / max(steps, 1))
