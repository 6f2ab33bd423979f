"""The reports of a watch: the saved curve, the metrics for trackers, and a line when something has changed."""

import time
from collections.abc import Sequence
from typing import Any

from unstuck.attach.line import Line
from unstuck.attach.live import Trackers
from unstuck.attach.messages import log
from unstuck.attach.pace import Pace
from unstuck.attach.run_files import RunFiles
from unstuck.columns import STEP, Row, is_loss
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.forecast import Forecaster
from unstuck.forecast.loss import from_loss

GROWTH, SECONDS = 1.1, 60.0  # growth of the steps, or seconds, after which the curve is saved again
EARLY_GROWTH, EARLY_STEPS = 2.0, 50  # the same growth, and steps, while time is spent in advance


class Reports:
    """Makes the reports of one training."""

    def __init__(self, files: RunFiles, pace: Pace, forecaster: Forecaster, trackers: Sequence[Any] | None) -> None:
        self.files, self.pace, self.forecaster = files, pace, forecaster
        self.trackers = Trackers(trackers)
        self.last = 0  # step of the last report
        self._then = time.monotonic()
        self._line: Line | None = None  # the last one printed
        self._unsaid: Line | None = None  # that of the last report, if it was not printed

    def begin(self, step: int) -> None:
        self.last, self._then = step, time.monotonic()

    def is_due(self, step: int) -> bool:
        """Have the steps grown enough, or has enough time passed, and is there time for it?"""
        early = self.pace.every is None and not self.pace.has_earned("report")
        next_step = max(EARLY_GROWTH * self.last, self.last + EARLY_STEPS) if early else GROWTH * self.last + 1
        grown = step >= next_step or time.monotonic() - self._then >= SECONDS
        return grown and self.pace.allows("report")

    def make(self, rows: Sequence[Row], step: int, *, is_trial: bool = False, is_last: bool = False) -> None:
        """Save the curve, write to trackers, and print a line if something has changed, or if this is the last one.
        Rows of a trial, which may be replaced, are not written to trackers."""
        self.begin(step)
        if rows:
            self.files.save(rows, self.pace.seconds_per_step(step))
        curve = Curve.from_rows(rows)
        try:
            said = self.forecaster.predict(curve)
        except BadInput:  # neither a loss nor a measure of heads yet
            return
        line = Line.of(curve, said, self.pace.seconds_per_step(step))
        is_new = self._line is None or line.forecast.now != self._line.forecast.now
        if (is_last and is_new) or line.is_news_after(self._line):
            log.info("%s", line)
            self._line, self._unsaid = line, None
        else:
            self._unsaid = line
        if not is_trial:
            self.trackers.write(curve, line, self.files.path)

    def say_last(self) -> None:
        """Print the line of the last report, unless that was done."""
        if self._unsaid is not None:
            log.info("%s", self._unsaid)
            self._line, self._unsaid = self._unsaid, None

    def follow_loss(self, rows: Sequence[Row]) -> None:
        """Between two reports: print a line if the loss alone shows a new state, such as a plateau that it has left."""
        curve = Curve.from_rows({name: row[name] for name in row if name == STEP or is_loss(name)} for row in rows)
        if curve.loss_name is None:
            return
        seen = from_loss(curve)
        line = Line(seen, seen)
        if line.shows_new_loss_after(self._line):
            log.info("%s", line)
            self._line = line if self._line is None else self._line.with_loss(seen)
