"""Signals that stop a process, as a question that work can ask, and a way to start workers that never hear Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Ctrl-C, `kill`, and a terminal that is closed, as far as the platform has them.
STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def handled(handler: Any, numbers: Iterable[int] = STOPS) -> dict[int, Any]:
    """Let `handler` hear signals; returns the handlers before. What is ignored, as SIGHUP by `nohup`, stays ignored."""
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heard}


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Turns the signals `STOPS` into an answer to ask for, so that work can stop at a good place; raised as an
    exception one may be lost, as in a destructor. The second one is raised at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():  # there Python hears no signals
        yield lambda: False
        return
    before = handled(ask)
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits: a worker that is started here never hears of it, and we do afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
