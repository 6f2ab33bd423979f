"""The answer of a forecaster: an outcome, the step of an event with an interval, and what qualifies the answer."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from unstuck.curve import Curve
from unstuck.drawing import as_html, axes, draw_probability, figure_of, mark_forecast
from unstuck.errors import InvalidCombination

from .events import Event
from .notes import Notes, Outcome
from .sentences import sentence
from .survival import Survival

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Forecast:
    """What a run will do, as far as its curve up to step `now` shows.

    `step` is the predicted step of the event where the outcome is EMERGES, and the observed one where it is EMERGED or
    LEFT (None if the loss fell without a plateau). `print(forecast)` shows the answer in a sentence, `evidence`.
    """

    outcome: Outcome
    now: float  # step
    signal: str  # what it rests on: one of `KINDS`, or the name of a loss
    event: Event = Event.EXIT
    step: float | None = None
    level: float = 0.8  # coverage of the interval, unless another one is asked for
    probability: float | None = None  # of the event before twice the present step, counted from `notes.since`
    distribution: Survival | None = None  # of the step, whether or not an end is stated; None without an estimate
    notes: Notes = field(default_factory=Notes)

    def interval(self, level: float | None = None) -> tuple[float, float] | None:
        """Two steps that hold the event with probability `level`; None where no end is predicted."""
        if self.outcome is not Outcome.EMERGES or self.distribution is None:
            return None
        return self.distribution.interval(level or self.level)

    @property
    def elapsed(self) -> float | None:
        """Fraction of the plateau that has passed; None where no end is predicted."""
        since = self.notes.since or 0.0
        return (self.now - since) / (self.step - since) if self.outcome is Outcome.EMERGES and self.step else None

    @property
    def soon(self) -> float:
        """The step that `probability` is about: twice the present one, counted from `notes.since`."""
        return 2 * self.now - (self.notes.since or 0.0)

    @property
    def evidence(self) -> str:
        """The answer in a sentence."""
        return sentence(self)

    def __str__(self) -> str:
        return self.evidence

    def plot(self, curve: Curve | None = None, ax: "Axes | None" = None) -> "Figure":
        """Draw the probability that the event has come by a step; with the `curve` of the run, its loss with the
        expected exit. On `ax` if it is given."""
        if curve is None and self.distribution is None:
            raise InvalidCombination("a forecast without a distribution of steps has no picture without curve=")
        ax = axes("Forecast.plot", ax)
        if curve is not None:
            curve.plot(ax=ax)
        elif self.distribution is not None:
            last = max(self.soon, 1.2 * (self.interval(0.9) or (0, 0))[1])
            steps = np.geomspace(max(self.now, 1), last, 200)
            draw_probability(ax, steps, np.array([self.distribution.by(step) for step in steps]), self.event.value)
        mark_forecast(ax, self.now, self.step, self.interval())
        return figure_of(ax)

    def _repr_html_(self) -> str:
        found, interval = self.to_dict(), self.interval()
        rows = {name: found[name] for name in ("outcome", "event", "signal", "now")}
        if interval is not None:
            rows |= {"step": f"{self.step:,.0f}", f"{self.level:.0%} interval": "{:,.0f} to {:,.0f}".format(*interval)}
        if self.probability is not None:
            rows["probability before twice the present step"] = f"{self.probability:.0%}"
        return as_html(self.evidence, rows, None if self.distribution is None else self.plot)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the same keys for every outcome; `step` is None unless the run EMERGES."""
        loss, on, interval = self.notes.loss, self.notes.calibrated_on, self.interval()
        found = {
            "outcome": self.outcome.value,
            "step": self.step if self.outcome is Outcome.EMERGES else None,
            "interval": None if interval is None else list(interval),
            "probability": self.probability,
            "event": self.event.value,
            "evidence": self.evidence,
            "calibration": None
            if on is None
            else dict(zip(("signal", "runs", "digest"), on, strict=True))
            | {"known_task": self.notes.known_task, "alike": not self.notes.unlike},
            "head": None if self.notes.head is None else list(self.notes.head),
            "now": int(self.now),
            "counted_from": self.notes.since or 0,
            "since": None if loss is None else loss.plateau_since,
            "loss": None if loss is None else loss.plateau_level,
            "slope": None if loss is None or loss.slope is None else list(loss.slope),
            "emerged": self.outcome is Outcome.EMERGED,
        }
        old = {name: _OLD[name][1](self) for name in _OLD if name not in ("plateau", "low", "high")}
        old["diverged"] = self.outcome is Outcome.DIVERGED
        found |= {"elapsed": self.elapsed, "level": None if self.notes.unlike else self.level, "signal": self.signal}
        return found | old

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Attributes of earlier versions, for one release."""
            if name not in _OLD:
                raise AttributeError(f"Forecast has no attribute {name!r}")
            new, value = _OLD[name]
            warnings.warn(f"Forecast.{name} is now {new}; the old name goes with the next release", FutureWarning, 2)
            return value(self)


def _left(f: Forecast) -> float | None:
    """The observed step at which the plateau was left, or the loss began to leave it."""
    return f.step if f.outcome in (Outcome.EMERGED, Outcome.LEFT) else f.notes.falling_since


#: Attributes of earlier versions: what has taken their place, and their value.
_OLD: dict[str, tuple[str, Callable[[Forecast], Any]]] = {
    "plateau": ("step", lambda f: f.step if f.outcome is Outcome.EMERGES else None),
    "low": ("interval()", lambda f: (f.interval() or (None, None))[0]),
    "high": ("interval()", lambda f: (f.interval() or (None, None))[1]),
    "sign": ("notes.signal_present", lambda f: f.notes.signal_present),
    "over": ("outcome", lambda f: f.outcome is Outcome.EMERGED),
    "formed": ("outcome and event", lambda f: f.outcome is Outcome.EMERGED and f.event is Event.CIRCUIT),
    "left": ("step or notes.falling_since", _left),
    "diverged": ("outcome and notes.divergence", lambda f: f.notes.divergence),
    "tells_from": ("notes.usable_from", lambda f: f.notes.usable_from),
    "seen": ("notes.last_measured", lambda f: f.notes.last_measured),
    "refuted": ("notes.refuted_law", lambda f: f.notes.refuted_law),
}
