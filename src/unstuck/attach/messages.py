"""Messages of a watch go through `logging`, to the logger `unstuck`."""

import logging
import sys

log = logging.getLogger("unstuck")


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Prints plain lines on stderr while nobody has configured logging."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("unstuck: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr  # a notebook or a test may have another one by now
            super().emit(record)


def make_visible() -> None:
    """Let lines of the level INFO appear, unless a level or a handler was chosen for this logger."""
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    if not log.handlers:
        log.addHandler(_Lines())
