"""How often a watch measures: as often as a share of the training time allows.

A measurement is made if the time of all of them, with this one, stays within `share` of the training time so far. In
the first seconds the share of `AHEAD` seconds may be spent in advance, since forecasts need early rows. So a training
of `AHEAD` seconds or more never spends more than `share`. Reports (a forecast, a saved curve) get half of it at most.
Tests of the loss alone have a part of the share to themselves, so that they go on when the rest is spent.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from unstuck.errors import BadInput
from unstuck.scalars import is_whole, real

AHEAD = 15.0  # seconds; at twice the value there are more early rows, and short trainings are slowed more
SHORTEST_GAP = 10  # steps between two measurements: neighbouring steps differ by little
DENSITY = 100  # rows while the steps grow by e, enough to test for a plateau; at twice that, files are twice as large
LOSS_PART = 0.2  # of the share, for tests of the loss; at twice the value a change of the loss is seen twice as soon
EARLY_DENSITY = 10  # the same while time is spent in advance, so that it lasts


class Pause(NamedTuple):
    """When the next measurement can be made."""

    seconds: float  # of training
    step: float  # about


class Pace:
    """Decides at which steps a watch measures; a fixed `every` counts alone."""

    def __init__(self, share: float = 0.01, every: int | None = None, clock: Callable[[], float] = time.perf_counter):
        if every is not None and (not is_whole(every) or every < 1):
            raise BadInput("every", every, "a whole number of steps, at least 1, or None for a share of the time")
        self.share = real("share", share, 1e-6, 1.0, "a fraction of the training time, above 0 and up to 1")
        self.every, self.clock = every, clock
        self.spent = 0.0  # seconds of all measurements and reports
        self._taken = {"report": 0.0, "loss": 0.0}  # seconds of reports, and of tests of the loss
        self.last = 0  # step of the last one
        self._cost: dict[str, float] = {}
        self._begun: float | None = None
        self._first = 0

    def begin(self, step: int) -> None:
        """Training begins, or continues, after this step. The clock starts."""
        self._begun, self._first, self.last = self.clock(), step, step

    @property
    def trained(self) -> float:
        """Seconds of training, without measurements."""
        return 0.0 if self._begun is None else max(0.0, self.clock() - self._begun - self.spent)

    def seconds_per_step(self, step: int) -> float | None:
        """Of the training with all that was measured."""
        done = step - self._first
        return None if self._begun is None or done < 1 else (self.clock() - self._begun) / done

    def is_due(self, step: int) -> bool:
        """Is a measurement due at this step?"""
        if self.every is not None:
            return step % self.every == 0 and step != self.last
        gap = step - self.last
        if gap < max(SHORTEST_GAP, step // DENSITY) or not self.allows("look"):
            return False
        return self.has_earned("look") or gap >= step // EARLY_DENSITY

    def pause(self, step: int) -> Pause | None:
        """When the next measurement can be made, if the time in advance is spent and the training has to go on for
        longer than it did so far."""
        trained = self.trained
        if self.every is not None or not 0 < trained < AHEAD or step - self.last < SHORTEST_GAP or self.allows("look"):
            return None
        seconds = (self._spent_besides + self._cost.get("look", 0.0)) / (self.share * (1 - self._reserved))
        if seconds < 2 * trained:
            return None
        return Pause(seconds, self._first + (step - self._first) * seconds / trained)

    def allows(self, kind: str) -> bool:
        """Is there time for it, by what it took the last time?"""
        return self.every is not None or self._fits(kind, max(self.trained, AHEAD))

    @property
    def allows_loss(self) -> bool:
        """Is there time for a test of the loss? Never in advance, so that these tests spread over the training. With
        fixed steps there is none: reports come at rows that are as dense."""
        most = LOSS_PART * self.share * self.trained
        return self.every is None and self._taken["loss"] + self._cost.get("loss", 0.0) <= most

    def has_earned(self, kind: str) -> bool:
        """The same without time in advance."""
        return self._fits(kind, self.trained)

    def _fits(self, kind: str, seconds: float) -> bool:
        cost, most = self._cost.get(kind, 0.0), self.share * (seconds - self._reserved * self.trained)
        return self._spent_besides + cost <= most and (kind == "look" or self._taken["report"] + cost <= most / 2)

    @property
    def _reserved(self) -> float:
        """Part of the share for tests of the loss, if there are any."""
        return LOSS_PART if self._taken["loss"] else 0.0

    @property
    def _spent_besides(self) -> float:
        return self.spent - self._taken["loss"]

    def expect(self, kind: str, seconds: float) -> None:
        """What a measurement or a report takes, before training begins."""
        self._cost[kind] = seconds

    def took(self, kind: str, seconds: float) -> None:
        """What a measurement, a report or a test of the loss took."""
        self._cost[kind] = seconds
        self.spent += seconds
        if kind in self._taken:
            self._taken[kind] += seconds
