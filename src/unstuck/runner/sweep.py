"""Many runs in one store: the product of lists of settings, in local processes, one thread each.

What is finished is not run again; what was stopped goes on. Two sweeps may share a directory: a run's lock decides
who does it.
"""

import dataclasses
import itertools
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unstuck.config.load import build_spec, merge, parse_overrides, read_source
from unstuck.config.run import RunSpec
from unstuck.errors import BadInput, InvalidCombination
from unstuck.runner.cost import predicted_cost, predicted_seconds
from unstuck.runner.execute import CHECKPOINT_SECONDS, execute, stored_result
from unstuck.runner.interrupts import interrupts, uninterrupted
from unstuck.runner.memory import keep_freed_memory
from unstuck.store.store import Store

MAX_RUNS = 100_000
Unit = Sequence[RunSpec]  # runs that race each other; most often just one


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
ORPHANED = 15.0  # seconds that a worker whose parent is gone has to write its checkpoint


def _start_worker(stop: Any) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker does not outlive the process that started it, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _stop.set()
        time.sleep(ORPHANED)
        os._exit(1)


def limited(spec: RunSpec, best: float) -> RunSpec:
    """A racer's specification: it need not train longer than the best plateau so far."""
    if math.isinf(best):
        return spec
    steps = min(spec.train.max_steps, math.ceil(best))
    return dataclasses.replace(spec, train=dataclasses.replace(spec.train, max_steps=steps))


def stored_results(unit: Unit, store: Store) -> list[dict[str, Any]] | None:
    """The results of a race's runs, in order, if it is over; None if something is still to do."""
    results: list[dict[str, Any]] = []
    best = math.inf
    for spec in unit:
        result = stored_result(store.run(spec.run_id), limited(spec, best))
        if result is None:
            return None
        results.append({"run_id": spec.run_id, **result.model_dump(), "cached": True})
        best = min(best, result.plateau_steps or math.inf)
    return results


def portable(spec: RunSpec) -> RunSpec | dict[str, Any]:
    """What a worker gets: a class from a user's file goes by that file's name, since the worker has not loaded it."""
    return spec.as_dict() if any(n.endswith(".py") for n in (spec.task_name, spec.model_name)) else spec


def work(
    unit: Sequence[RunSpec | dict[str, Any]],
    path: Path,
    checkpoint_seconds: float,
    stop: Callable[[], bool] | None = None,
) -> list[dict[str, Any]]:
    """One unit in a worker: its runs one after the other, each stopped once it has passed the best plateau so far."""
    results: list[dict[str, Any]] = []
    best = math.inf
    for given in unit:
        spec = limited(build_spec(given) if isinstance(given, dict) else given, best)
        result = execute(spec, Store(path), stop=stop or _stop.is_set, checkpoint_seconds=checkpoint_seconds)
        results.append(result)
        if result["status"] in ("busy", "stopped"):
            break
        best = min(best, result["plateau_steps"] or math.inf)
    return results


def run_sweep(
    specs: Sequence[RunSpec | Unit],
    store: Store,
    *,
    workers: int = 2,
    seconds: float = float("inf"),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Callable[[float, float, str], None] = lambda done, of, text: None,
    order: Literal["longest", "given"] = "longest",
) -> Sweep:
    """Carry out what is missing of `specs`; stops cleanly after `seconds`, or at an interrupt, and can be taken up
    again. `progress` hears of work in predicted seconds.

    The longest runs start first, so that no worker is left alone with one at the end; `order="given"` keeps the order
    of `specs`, for a list that is sorted by what matters most.

    An entry that is a list is a race: its runs follow one another in one worker, and each is stopped once it has
    trained longer than the best plateau before it.

    Workers import the task and the model by name. Classes that live in a notebook have none: `workers=0` runs
    everything in this process, one run after the other.
    """
    out = Sweep()
    todo = missing(specs, store, out)
    if not todo:
        return out
    if order == "longest":
        todo.sort(key=predicted_seconds, reverse=True)
    for spec in itertools.chain(*todo):
        if spec.train.device != "cpu":
            from unstuck.training.loop import check_device

            check_device(spec)
    if workers == 0:
        return _run_here(todo, store, out, seconds, checkpoint_seconds, progress)

    check_importable(todo)
    stop = multiprocessing.get_context("spawn").Event()
    deadline = time.monotonic() + seconds
    cost = [predicted_seconds(unit) for unit in todo]
    waiting = list(range(len(todo)))
    tried: Counter[int] = Counter()
    running: dict[Future[list[dict[str, Any]]], int] = {}
    done = 0.0
    pool = _pool(workers, stop)
    with interrupts() as interrupted:
        try:
            while waiting or running:
                if interrupted():
                    stop.set()
                while waiting and len(running) < workers and not stop.is_set():
                    i = waiting.pop(0)
                    tried[i] += 1
                    with uninterrupted():  # a worker inherits this, so that Ctrl-C reaches it only through us
                        job = pool.submit(work, [portable(s) for s in todo[i]], store.path, checkpoint_seconds)
                    running[job] = i
                if not running:
                    break
                finished, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                if any(isinstance(job.exception(), BrokenProcessPool) for job in finished):
                    # A worker was killed, most often for want of memory, and with it the pool. Whose run it was is not
                    # known: each is tried once more, and given up on if that ends the same way.
                    for i in running.values():
                        if tried[i] < 2:
                            waiting.insert(0, i)
                        else:
                            out.failed[todo[i][0].run_id] = "its worker process was killed (out of memory?), twice"
                            out.skipped += len(todo[i]) - 1
                            done += cost[i]
                    running = {}
                    pool.shutdown(wait=False)
                    pool = _pool(workers, stop)
                    continue
                for job in finished:
                    i = running.pop(job)
                    done += cost[i]
                    settle(out, todo[i], job)
                partial = sum(share_done(store, todo[i]) * cost[i] for i in running.values())
                progress(done + partial, sum(cost), f"{len(out.results)} of {count_runs(specs)} runs")
                if time.monotonic() > deadline:
                    stop.set()
        except KeyboardInterrupt:
            stop.set()
            for job, i in running.items():
                settle(out, todo[i], job)
            raise
        finally:
            pool.shutdown()
        if interrupted():
            raise KeyboardInterrupt
    out.skipped += sum(len(todo[i]) for i in waiting)
    return out


def _pool(workers: int, stop: Any) -> ProcessPoolExecutor:
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=spawn, initializer=_start_worker, initargs=(stop,))


def check_importable(todo: list[list[RunSpec]]) -> None:
    """Workers import classes by name; those of a notebook or inside a function have none."""
    for value in {type(x): x for unit in todo for spec in unit for x in (spec.task, spec.model)}.values():
        kind = type(value)
        notebook = kind.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
        if notebook or "<locals>" in kind.__qualname__ or hasattr(value, "_module"):
            raise InvalidCombination(
                f"{kind.__qualname__} lives in this process only, so other processes cannot import it; sweep with "
                "workers=0, or put it in a file"
            )


def _run_here(
    todo: list[list[RunSpec]],
    store: Store,
    out: Sweep,
    seconds: float,
    checkpoint_seconds: float,
    progress: Callable[[float, float, str], None],
) -> Sweep:
    deadline = time.monotonic() + seconds
    cost = [predicted_seconds(unit) for unit in todo]
    for i, unit in enumerate(todo):
        job: Future[list[dict[str, Any]]] = Future()
        try:
            job.set_result(work(unit, store.path, checkpoint_seconds, lambda: time.monotonic() > deadline))
        except Exception as e:  # as in a worker: `settle` names it
            job.set_exception(e)
        settle(out, unit, job)
        progress(sum(cost[: i + 1]), sum(cost), f"{len(out.results)} of {count_runs(todo)} runs")
    return out


def count_runs(specs: Sequence[RunSpec | Unit]) -> int:
    return sum(1 if isinstance(s, RunSpec) else len(s) for s in specs)


def missing(specs: Sequence[RunSpec | Unit], store: Store, out: Sweep) -> list[list[RunSpec]]:
    """What is not done yet, the same run asked for twice only once; what is done goes to `out`."""
    todo: dict[tuple[str, ...], list[RunSpec]] = {}
    for entry in specs:
        unit = [entry] if isinstance(entry, RunSpec) else list(entry)
        stored = stored_results(unit, store)
        if stored is not None:
            out.results |= {r["run_id"]: r for r in stored}
            continue
        key = tuple(spec.run_id for spec in unit)
        todo[key] = [a.with_budget_of(b) for a, b in zip(todo[key], unit, strict=True)] if key in todo else unit
    return list(todo.values())


def settle(out: Sweep, unit: Unit, job: "Future[list[dict[str, Any]]]") -> None:
    try:
        results = job.result()
    except Exception as e:  # a run that fails must not stop the others
        out.failed[unit[0].run_id] = "".join(traceback.format_exception_only(e)).strip()
        out.skipped += len(unit) - 1
        return
    done = {r["run_id"]: r for r in results if r["status"] not in ("busy", "stopped")}
    out.results |= done
    out.skipped += len(unit) - len(done)


def share_done(store: Store, unit: Unit) -> float:
    """How far a unit is, by its runs' status files; never quite done."""
    steps = sum((store.run(spec.run_id).status() or {}).get("step", 0) for spec in unit)
    return min(0.95, steps / max(1, sum(predicted_cost(spec).steps for spec in unit)))
