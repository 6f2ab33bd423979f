"""The answer of a forecaster: an outcome, the step of an event with an interval, and what qualifies the answer."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from unstuck.curve import Curve
from unstuck.drawing import as_html, axes, draw_probability, figure_of, mark_forecast
from unstuck.errors import InvalidCombination

from .events import Event
from .features import HISTORY, UNCALIBRATED
from .plateau import MIN_ROWS
from .survival import Survival

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Outcome(StrEnum):
    """What is said of a run at its present step."""

    EMERGES = "emerges"  # an end is predicted
    NOT_SOON = "not_soon"  # an end within twice the present step is unlikely
    NO_SIGN = "no_sign"  # nothing can be said: the evidence is between the two, or of a kind that nothing was fitted on
    TOO_EARLY = "too_early"  # the measurements do not go back far enough
    EMERGED = "emerged"  # the event has happened
    DIVERGED = "diverged"  # the loss is not finite, or far above its start
    # from the loss alone, which cannot say how long a plateau will last:
    PLATEAU = "plateau"
    FALLING = "falling"
    RISING = "rising"
    UNCLEAR = "unclear"  # too few rows
    LEFT = "left"  # the loss has fallen from a plateau


@dataclass(frozen=True)
class LossNotes:
    """What a loss alone shows."""

    rows: int  # with a finite loss
    last: float | None
    plateau_since: float | None = None  # step
    plateau_level: float | None = None  # median loss
    slope: tuple[float, float, float] | None = None  # fraction of the loss a doubling of steps, and its interval
    bound: float | None = None  # within which that is flat
    fell: tuple[float, float] | None = None  # from its first rows to its last, if nearly to zero


@dataclass(frozen=True)
class Notes:
    """What qualifies a forecast; None where it does not apply."""

    signal_present: bool = False  # the attention itself predicts the end; if not, only a law does
    calibrated_on: tuple[str, int, str] | None = None  # kind of evidence, number of runs, digest of the fitted model
    unlike: bool = False  # the run is unlike those that the model was fitted on: the interval's coverage is unknown
    head: tuple[str, int, int] | None = None  # measure, layer and head that moved most
    chance: float | None = None  # probability of such attention without knowledge of the targets, where it is measured
    selective: bool | None = None  # is that low enough to say that a head attends to the targets?
    since: float | None = None  # step at which the loss came to its level, from which steps are counted after an exit
    no_level: bool = False  # the loss has not stood at a level yet, so that there is none to leave
    usable_from: float | None = None  # step from which on the measurements go back far enough
    last_measured: int | None = None  # step of the last measurement of attention, if that is long ago
    refuted_law: float | None = None  # step that a law predicted, if it has passed without the event
    falling_since: float | None = None  # step at which the loss began to fall from its plateau
    divergence: str | None = None  # how the loss has diverged
    loss: LossNotes | None = None  # of a forecast from the loss alone


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
        qualifiers = _qualifiers(self) if self.outcome in _OPEN else []
        return "; ".join([_SENTENCES[self.outcome](self), *qualifiers])

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
            else dict(zip(("signal", "runs", "digest"), on, strict=True)) | {"alike": not self.notes.unlike},
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

# -- the sentence

_OPEN = (
    Outcome.EMERGES,
    Outcome.NOT_SOON,
    Outcome.NO_SIGN,
    Outcome.TOO_EARLY,
)  # outcomes that further measurements may change
_EVENTS = {  # in the future and in the past
    Event.EXIT: ("leaves the plateau", "left its plateau"),
    Event.CIRCUIT: ("forms induction heads", "formed induction heads"),
    Event.TASK: ("reaches its threshold", "reached its threshold"),
}


def _qualifiers(f: Forecast) -> list[str]:
    notes, found = f.notes, []
    if f.outcome is Outcome.EMERGES and not notes.signal_present:
        found.append("no sign of it in the attention, this is the prediction of the law")
    if f.outcome is not Outcome.EMERGES and notes.selective and notes.head is not None:
        _, layer, head = notes.head
        found.append(f"layer {layer + 1}, head {head + 1} already attends to the targets (chance {notes.chance:.0e})")
    if notes.since is not None:
        found.append(f"the loss came to this level at about step {notes.since:,.0f}")
    if notes.falling_since is not None:
        found.append(f"the loss has been falling since about step {notes.falling_since:,.0f}")
    if notes.refuted_law is not None:
        found.append(f"the law is left out, since it predicted step {notes.refuted_law:,.0f}, which has passed")
    if notes.unlike and f.outcome is Outcome.EMERGES:
        found.append("the run is unlike those that the model was fitted on, so the coverage of the interval is unknown")
    if notes.last_measured is not None:
        found.append(f"attention was last measured at step {notes.last_measured:,}")
    return found


def _emerges(f: Forecast) -> str:
    low, high = f.interval() or (math.nan, math.nan)
    band = f"{'' if f.notes.unlike else f'{100 * f.level:g}% interval '}{low:,.0f} to {high:,.0f}"
    return f"{_EVENTS[f.event][0]} at about step {f.step:,.0f} ({band}), {f.elapsed:.0%} elapsed"


def _no_sign(f: Forecast) -> str:
    if f.signal == UNCALIBRATED:
        why = "without targets or a vocabulary only the entropy over all rows is measured, which predicts no end"
        return f"no forecast at step {f.now:,.0f}: {why}"
    why = "" if f.probability is None else f"; before step {f.soon:,.0f} it comes with probability {f.probability:.0%}"
    if f.notes.selective is False and f.probability is None:
        why = f": heads that ignore the targets show such attention with probability {f.notes.chance:.2g}"
        why += ", more sequences in the probe tell sooner"
    return f"no believable end at step {f.now:,.0f}{why} (signal: {f.signal})"


def _not_soon(f: Forecast) -> str:
    return f"no end is expected before step {f.soon:,.0f} (probability {f.probability or 0:.0%}, signal: {f.signal})"


def _too_early(f: Forecast) -> str:
    if f.notes.no_level:
        return f"too early to tell at step {f.now:,.0f}: the loss has not stood at a level yet"
    if f.notes.usable_from is None:
        return f"too early to tell at step {f.now:,.0f}"
    start = f.notes.usable_from
    history = f"measurements go back to step {start / HISTORY:,.0f} only, a forecast needs step {start:,.0f}"
    return f"too early to tell at step {f.now:,.0f}: {history}"


def _emerged(f: Forecast) -> str:
    if f.step is None:
        return f"the loss has fallen nearly to zero by step {f.now:,.0f}, without a plateau"
    heads = "; no induction head has formed" if f.signal == "induction" and f.event is Event.EXIT else ""
    return f"{_EVENTS[f.event][1]} at about step {f.step:,.0f}{heads}"


def _diverged(f: Forecast) -> str:
    how = f": the loss is {f.notes.divergence}" if f.notes.divergence else ""
    return f"the run has diverged by step {f.now:,.0f}{how}"


def _on_plateau(f: Forecast) -> str:
    loss = _loss(f)
    level = f"({f.signal} {loss.plateau_level:.4g})"
    text = f"on a plateau since about step {loss.plateau_since:,.0f} {level}, now at step {f.now:,.0f}"
    return f"{text}: {_slope(loss)}, flat to within {loss.bound:.2%}" if loss.slope else text


def _moving(f: Forecast) -> str:
    return f"not on a plateau at step {f.now:,.0f}: {f.signal} {f.outcome.value}, {_slope(_loss(f))}"


def _unclear(f: Forecast) -> str:
    loss = _loss(f)
    if loss.rows < MIN_ROWS:
        return f"too few rows to tell: {f.signal} has {loss.rows}, a plateau needs {MIN_ROWS}"
    now = f"at step {f.now:,.0f}: {f.signal} changes by {_slope(loss)}"
    if loss.fell is not None:
        return "fell from {:.4g} to {:.4g}; too noisy to tell whether it still does ".format(*loss.fell) + now
    return f"too noisy to tell {now}"


def _slope(loss: LossNotes) -> str:
    """The change a doubling of steps, with its interval."""
    if loss.slope is None:
        return "an amount that so few rows do not show"
    return "{:+.1%} a doubling of steps (95% interval {:+.1%} to {:+.1%})".format(*loss.slope)


def _loss(f: Forecast) -> LossNotes:
    return f.notes.loss or LossNotes(0, None)


_SENTENCES: dict[Outcome, Callable[[Forecast], str]] = {
    Outcome.EMERGES: _emerges,
    Outcome.NOT_SOON: _not_soon,
    Outcome.NO_SIGN: _no_sign,
    Outcome.TOO_EARLY: _too_early,
    Outcome.EMERGED: _emerged,
    Outcome.DIVERGED: _diverged,
    Outcome.PLATEAU: _on_plateau,
    Outcome.FALLING: _moving,
    Outcome.RISING: _moving,
    Outcome.UNCLEAR: _unclear,
    Outcome.LEFT: lambda f: f"left its plateau at about step {f.step:,.0f}: {f.signal} is {_loss(f).last:.4g} now",
}
