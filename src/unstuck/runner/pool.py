"""Local processes that carry out the units of a sweep, one thread each."""

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from unstuck.config.run import RunSpec
from unstuck.runner.execute import Executed
from unstuck.runner.interrupts import hear, interrupts, uninterrupted
from unstuck.runner.memory import keep_freed_memory
from unstuck.runner.units import Agenda, portable, work

LOOK = 0.5  # seconds between reports of how far the runs are
TRIES = 2  # of a unit whose worker process was killed
ORPHANED = 15.0  # seconds that a worker whose parent is gone has to write its checkpoint
FAREWELL = 1.0  # seconds that a worker which was asked to end has to hand over its result

_worker: "_Worker"  # in a worker: what it knows of itself


class _Worker:
    """A process that carries out units: it stops where the parent says so, or where it is asked to end itself."""

    def __init__(self, stop: Any) -> None:
        self.stop, self.busy, self.ending = stop, False, False

    def end(self, number: int, frame: Any) -> None:
        """On SIGTERM and SIGHUP: the run that is under way writes its checkpoint first."""
        if not self.busy:
            os._exit(1)
        self.ending = True

    def work(self, unit: Sequence[RunSpec | dict[str, Any]], path: Path, checkpoint_seconds: float) -> list[Executed]:
        self.busy = True
        try:
            return work(unit, path, checkpoint_seconds, lambda: self.ending or self.stop.value)
        finally:
            self.busy = False
            if self.ending:
                threading.Thread(target=_end_after, args=(FAREWELL,), daemon=True).start()


def _start_worker(stop: Any) -> None:
    global _worker
    _worker = _Worker(stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    hear(_worker.end)
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker does not outlive the process that started it, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _worker.ending = True
        _end_after(ORPHANED)


def _end_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(1)


def _work(unit: Sequence[RunSpec | dict[str, Any]], path: Path, checkpoint_seconds: float) -> list[Executed]:
    return _worker.work(unit, path, checkpoint_seconds)


class LocalPool:
    """Processes, the units that they are at, and those that wait."""

    def __init__(self, agenda: Agenda, workers: int, checkpoint_seconds: float) -> None:
        self.agenda, self.workers, self.checkpoint_seconds = agenda, workers, checkpoint_seconds
        # Without a lock: a worker that is killed while it holds one would stop all others for ever.
        self.stop = multiprocessing.get_context("spawn").RawValue(ctypes.c_bool, False)
        self.waiting = list(range(len(agenda.todo)))
        self.running: dict[Future[list[Executed]], int] = {}
        self.tried: Counter[int] = Counter()
        self.pool = self._new_pool()

    def run(self, seconds: float) -> None:
        """Carry out the agenda; stops cleanly after `seconds`, or at an interrupt, which is raised."""
        deadline = time.monotonic() + seconds
        with interrupts() as interrupted:
            try:
                while self.waiting or self.running:
                    if interrupted() or time.monotonic() > deadline:
                        self.stop.value = True
                    self._start()
                    if not self.running:
                        break
                    self._collect()
            except KeyboardInterrupt:
                self.stop.value = True
                for job, i in self.running.items():
                    self.agenda.settle(i, job)
                raise
            finally:
                self.pool.shutdown()
            if interrupted():
                raise KeyboardInterrupt
        self.agenda.skip(self.waiting)

    def _start(self) -> None:
        """Give units to the workers that have none."""
        while self.waiting and len(self.running) < self.workers and not self.stop.value:
            i = self.waiting.pop(0)
            self.tried[i] += 1
            unit = [portable(spec) for spec in self.agenda.todo[i]]
            with uninterrupted():  # a worker inherits this
                job = self.pool.submit(_work, unit, self.agenda.store.path, self.checkpoint_seconds)
            self.running[job] = i

    def _collect(self) -> None:
        """Wait for a moment, and take what has finished."""
        finished, _ = wait(self.running, timeout=LOOK, return_when=FIRST_COMPLETED)
        if any(isinstance(job.exception(), BrokenProcessPool) for job in finished):
            self._replace_pool()
            return
        for job in finished:
            self.agenda.settle(self.running.pop(job), job)
        self.agenda.report(self.running.values())

    def _replace_pool(self) -> None:
        """A worker was killed, most often for want of memory, and with it the pool. Whose run it was is not known: each
        unit is tried once more, and given up on if that ends the same way."""
        for i in self.running.values():
            if self.tried[i] < TRIES or self.stop.value:
                self.waiting.insert(0, i)
            else:
                self.agenda.give_up(i, "its worker process was killed (out of memory?), twice")
        self.running = {}
        self.pool.shutdown()  # the other workers have been asked to end: each writes its checkpoint and frees its lock
        self.pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        with uninterrupted():  # the process that tracks semaphores inherits this: it must outlive the workers
            return ProcessPoolExecutor(self.workers, mp_context=spawn, initializer=_start_worker, initargs=(self.stop,))
