"""Ctrl-C as a question that work can ask, and a way to start workers that never hear of it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts(*numbers: int) -> Iterator[Callable[[], bool]]:
    """Turns signals, Ctrl-C unless told otherwise, into an answer to ask for, so that work can stop at a good place;
    raised as an exception one may be lost, as in a destructor. The second one is raised at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():  # there Python hears no signals
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in numbers or (signal.SIGINT,)}
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
