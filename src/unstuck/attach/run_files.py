"""The run directory of a watch: which one it is, and the rows in it."""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from unstuck.attach.messages import log
from unstuck.attach.saving import load_rows, save_rows
from unstuck.columns import Row
from unstuck.errors import BadInput
from unstuck.scalars import is_whole
from unstuck.store.processes import this_process
from unstuck.store.store import RunDirectory

MOST_DIRECTORIES = 1000  # of one name, with a number behind it


class RunFiles:
    """A directory for the rows of one training. `path` is None until it is chosen, unless the user names it."""

    def __init__(self, path: Path | None, model: str) -> None:
        self.path, self.model = path, model
        self.mark = ""  # of what is measured
        self.tokens: list[int] | None = None  # of which the induction test is made, if the first batch has shown them
        self.is_chosen = self.is_ended = False
        self._saved, self._interval = time.monotonic(), 0.0  # seconds, the longest between two savings

    def choose(self, before: int) -> list[Row]:
        """A directory of its own: new, or that of the training that is resumed, whose rows before a step are returned.
        Before step 0 there are none: such a training is new."""
        self.is_chosen = True
        stem = self.path or Path("runs") / f"{self.model}-{datetime.now():%Y%m%d-%H%M%S}"
        self.path = stem
        for again in range(2, MOST_DIRECTORIES):
            if not self.path.exists():
                return []
            if before:
                try:
                    return load_rows(self.path, self.mark, before)
                except BadInput as e:
                    log.warning("the earlier rows are not continued: %s", e)
            self.path = stem.with_name(f"{stem.name}-{again}")
        return []

    def saved_tokens(self) -> list[int] | None:
        """Those of the training that is resumed, whose test goes on: its first batch may not come again."""
        found = None if self.path is None else (RunDirectory(self.path).status() or {}).get("tokens")
        return found if isinstance(found, list) and found and all(map(is_whole, found)) else None

    def save(self, rows: Sequence[Row], seconds_per_step: float | None) -> Path | None:
        """Write the rows; None if they cannot be written."""
        assert self.path is not None
        now = time.monotonic()
        self._saved, self._interval = now, max(self._interval, now - self._saved)
        known: dict[str, Any] = {"process": this_process(), "interval": self._interval, "ended": self.is_ended}
        if self.tokens is not None:
            known["tokens"] = self.tokens
        try:
            return save_rows(
                self.path, rows, self.model, self.mark, seconds_per_step=seconds_per_step, alone=True, known=known
            )
        except OSError as e:
            log.warning("the curve is not saved: %s", e)
            return None

    def end(self, step: int) -> None:
        """Say in the directory that this watch has ended, unless another one of the same training has gone on there."""
        run = None if self.path is None or not self.is_chosen else RunDirectory(self.path)
        status = None if run is None else run.status()
        if run is None or status is None or (status.get("process"), status.get("step")) != (this_process(), step):
            return
        run.write_status(status | {"ended": True})
