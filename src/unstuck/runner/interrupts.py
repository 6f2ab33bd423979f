"""Signals that stop a process, as a question that work can ask, and a way to start workers that never hear Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Ctrl-C, `kill`, and a terminal that is closed, as far as the platform has them.
STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def handled(handler: Any, numbers: Iterable[int] = STOPS) -> dict[int, Any]:
    """Let `handler` hear signals; returns the handlers before. SIGHUP that is ignored, as by `nohup`, stays so; SIGINT
    is also ignored in a script's background jobs, and heard there, since `make stop-runs` sends it."""
    hangup = getattr(signal, "SIGHUP", None)
    kept = [number for number in numbers if number == hangup and signal.getsignal(number) is signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in numbers if number not in kept}


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
    """Signals wait: a process that is started here does not hear of them unless it asks to, and we do afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear(handler: Any) -> None:
    """In a worker that was started so: hear all signals but Ctrl-C, about which the parent decides."""
    others = [number for number in STOPS if number != signal.SIGINT]
    handled(handler, others)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, others)
