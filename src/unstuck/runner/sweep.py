"""Many runs in one store: the product of lists of settings, in local processes, one thread each.

What is finished is not run again; what was stopped goes on. Two sweeps may share a directory: a run's lock decides
who does it.
"""

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from unstuck.config.load import build_spec, merge, parse_overrides, read_source
from unstuck.config.run import RunSpec
from unstuck.errors import BadInput
from unstuck.runner.execute import CHECKPOINT_SECONDS, Executed
from unstuck.runner.interrupts import interrupts
from unstuck.runner.pool import LocalPool
from unstuck.runner.units import Agenda, Order, Progress, Sweep, Unit, work
from unstuck.store.store import Store
from unstuck.training.loop import check_device
from unstuck.training.trial import try_any

MAX_RUNS = 100_000


def expand(source: str, words: Iterable[str]) -> list[RunSpec]:
    """The specifications of a sweep: "task.T=16,32" stands for both, and all lists are multiplied."""
    choices = []
    for word in words:
        key, equals, values = word.partition("=")
        choices.append([f"{key}{equals}{v}" for v in split_values(values)] if equals else [word])
    count = math.prod(map(len, choices))
    if count > MAX_RUNS:
        raise BadInput("sweep", f"{count} runs", f"at most {MAX_RUNS}")
    base = read_source(source)
    return [build_spec(merge(base, parse_overrides(words))) for words in itertools.product(*choices)]


def split_values(text: str) -> list[str]:
    """Cut at commas outside brackets."""
    pieces, depth = [""], 0
    for c in text:
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += c
    return pieces


def run_sweep(
    specs: Sequence[RunSpec | Unit],
    store: Store,
    *,
    workers: int = 2,
    seconds: float = float("inf"),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress = lambda done, of, text: None,
    order: Order = "longest",
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
    agenda = Agenda(specs, store, progress, order)
    for spec in itertools.chain(*agenda.todo):
        check_device(spec)
    try_any(list(itertools.chain(*agenda.todo)))
    if workers == 0:
        _run_here(agenda, seconds, checkpoint_seconds)
    elif agenda.todo:
        agenda.check_importable()
        LocalPool(agenda, workers, checkpoint_seconds).run(seconds)
    return agenda.sweep


def _run_here(agenda: Agenda, seconds: float, checkpoint_seconds: float) -> None:
    """Carry out the agenda in this process."""
    deadline = time.monotonic() + seconds
    with interrupts() as interrupted:

        def stop() -> bool:
            return interrupted() or time.monotonic() > deadline

        for i, unit in enumerate(agenda.todo):
            job: Future[list[Executed]] = Future()
            try:
                job.set_result(work(unit, agenda.store.path, checkpoint_seconds, stop))
            except Exception as e:  # as in a worker: `settle` names it
                job.set_exception(e)
            agenda.settle(i, job)
            agenda.report([])
            if interrupted():
                raise KeyboardInterrupt
