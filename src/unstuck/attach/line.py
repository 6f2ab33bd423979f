"""The line that a watch prints: where a run stands, what is expected, by what evidence, and when by the clock.

step 90 | plateau since 20 | exit about 174 (147-205) | medium: attention to your targets, head 2.3 | about 14:05
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from unstuck.curve import Curve
from unstuck.forecast import Event, Forecast, Outcome
from unstuck.forecast.loss import from_loss

HIGH, MEDIUM = 0.9, 0.5  # probabilities of the event before twice the present step, from which on trust is so called
NEWS = 0.1  # change of a predicted step that is worth a line
_EVENTS = {Event.EXIT: "exit", Event.CIRCUIT: "induction heads", Event.TASK: "threshold"}
_EVIDENCE = {
    "attention": "attention to your targets",
    "induction": "induction scores",
    "entropy": "entropy of attention",
}


@dataclass(frozen=True)
class Line:
    """What a watch knows of a run at one step."""

    forecast: Forecast
    loss: Forecast | None  # what the loss alone shows
    seconds_per_step: float | None = None

    @classmethod
    def of(cls, curve: Curve, forecast: Forecast, seconds_per_step: float | None = None) -> "Line":
        of_loss = forecast if forecast.notes.loss is not None else None
        if of_loss is None and curve.loss_name is not None:
            of_loss = from_loss(curve)
        return cls(forecast, of_loss, seconds_per_step)

    def is_news_after(self, other: "Line | None") -> bool:
        """Has something changed: the outcome, the state of the loss, or the predicted step by a tenth?"""
        if self._knows_nothing:
            return False
        if other is None:
            return True
        if self._state != other._state:
            return True
        mine, theirs = self.forecast.step, other.forecast.step
        return bool(mine and theirs and abs(math.log(mine / theirs)) > NEWS)

    def shows_new_loss_after(self, other: "Line | None") -> bool:
        """Is the loss in another state? Noise that hides its state is not news."""
        if self.loss is None or self.loss.outcome is Outcome.UNCLEAR:
            return False
        return other is None or other.loss is None or other.loss.outcome is not self.loss.outcome

    def with_loss(self, loss: Forecast) -> "Line":
        """The same with what the loss shows by now."""
        return replace(self, loss=loss, forecast=self.forecast if self.forecast.notes.loss is None else loss)

    @property
    def _state(self) -> tuple[object, ...]:
        said = self.forecast
        of_loss = self.loss and (self.loss.outcome, self.loss.outcome is Outcome.UNCLEAR and self._has_fallen)
        return said.outcome, said.event, said.step is None, self.grade, of_loss

    @property
    def _knows_nothing(self) -> bool:
        loss = None if self.loss is None else self.loss.outcome
        unknown = (Outcome.TOO_EARLY, Outcome.NO_SIGN, Outcome.UNCLEAR)
        return not self._has_fallen and loss in (None, Outcome.UNCLEAR) and self.forecast.outcome in unknown

    @property
    def _has_fallen(self) -> bool:
        return self.loss is not None and self.loss.notes.loss is not None and self.loss.notes.loss.fell is not None

    @property
    def grade(self) -> str:
        """How far the forecast can be trusted: high, medium or low; empty where none is made. It is low where the curve
        is unlike those of the fit."""
        said = self.forecast
        if said.outcome is not Outcome.EMERGES:
            return ""
        if said.notes.unlike or said.probability is None:
            return "low"
        if said.probability >= HIGH:
            return "high"
        return "medium" if said.probability >= MEDIUM else "low"

    def __str__(self) -> str:
        parts = [
            f"step {self.forecast.now:,.0f}",
            self._loss_part(),
            self._event_part(),
            self._evidence(),
            self._clock(),
        ]
        return " | ".join(part for part in parts if part)

    def _loss_part(self) -> str:
        if self.loss is None:
            return "no loss"
        seen = self.loss.notes.loss
        if self.loss.outcome is Outcome.PLATEAU and seen is not None and seen.plateau_since is not None:
            return f"plateau since {seen.plateau_since:,.0f}"
        names = {Outcome.FALLING: "loss falling", Outcome.RISING: "loss rising", Outcome.DIVERGED: "loss diverged"}
        names |= {Outcome.LEFT: self._left_part(self.loss), Outcome.UNCLEAR: _unclear_part(self.loss)}
        return names.get(self.loss.outcome, self.loss.outcome.value)

    def _left_part(self, loss: Forecast) -> str:
        """The exit by the forecast's own rule, which asks for a fall by a fifth; else the first row below the plateau,
        which is earlier."""
        if self._is_one_exit:
            return f"left a plateau at {self.forecast.step:,.0f}"
        return f"loss below its plateau since {loss.step or 0.0:,.0f}"

    @property
    def _is_one_exit(self) -> bool:
        """Do the forecast and the loss alone speak of one exit that has come?"""
        said = self.forecast
        left = self.loss is not None and self.loss.outcome is Outcome.LEFT
        return left and said.outcome is Outcome.EMERGED and said.event is Event.EXIT and said.step is not None

    def _event_part(self) -> str:
        if self._is_one_exit:
            return ""
        said, event = self.forecast, _EVENTS[self.forecast.event]
        band = said.interval()
        if said.outcome is Outcome.EMERGES and band is not None:
            return f"{event} about {said.step:,.0f} ({band[0]:,.0f}-{band[1]:,.0f})"
        if said.outcome is Outcome.EMERGED:
            return f"{event} at {said.step:,.0f}" if said.step is not None else "nothing left to learn"
        if said.notes.unformed is not None:
            return f"no induction heads by {said.notes.unformed:,.0f}"
        names = {Outcome.NOT_SOON: f"no {event} before {said.soon:,.0f}", Outcome.TOO_EARLY: "too early to tell"}
        return names.get(
            said.outcome, "" if self.loss and said.outcome is self.loss.outcome else f"no {event} in sight"
        )

    def _evidence(self) -> str:
        said = self.forecast
        if not self.grade:
            return ""
        head = "" if said.notes.head is None else f", head {said.notes.head[1]}.{said.notes.head[2]}"
        return f"{self.grade}: {_EVIDENCE.get(said.signal, said.signal)}{head}"

    def _clock(self) -> str:
        said = self.forecast
        if said.outcome is not Outcome.EMERGES or said.step is None or not self.seconds_per_step:
            return ""
        seconds = (said.step - said.now) * self.seconds_per_step
        if not 0 <= seconds < 1e8:  # three years
            return ""
        then = datetime.now() + timedelta(seconds=seconds)
        return f"about {then:%H:%M}" if seconds < 12 * 3600 else f"about {then:%d %b %H:%M}"


def _unclear_part(loss: Forecast) -> str:
    fell = None if loss.notes.loss is None else loss.notes.loss.fell
    return "loss unclear yet" if fell is None else "loss fell from {:.3g} to {:.3g}, unclear now".format(*fell)
