"""Watches that nobody closes: they are closed by the next one, or at the end of the process, without a measurement."""

import atexit
import weakref
from typing import Protocol


class Closable(Protocol):
    def close(self, *, last: bool = True) -> None: ...


_freed: list[Closable] = []  # watches of trainings whose function has returned


def close_at_exit(watch: Closable) -> None:
    """Close it at the end of the process, if it still exists then."""
    atexit.register(_close, weakref.ref(watch))


def close_later(watch: Closable) -> None:
    """Keep a watch that is being freed: in the midst of any other code nothing may be computed or written."""
    _freed.append(watch)


def close_freed() -> None:
    while _freed:
        _freed.pop().close(last=False)


def _close(reference: "weakref.ref[Closable]") -> None:
    found = reference()
    if found is not None:
        found.close(last=False)
    close_freed()
