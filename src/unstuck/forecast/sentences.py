"""A forecast in a sentence, with what qualifies it."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from .events import Event
from .features import HISTORY, UNCALIBRATED
from .notes import LossNotes, Outcome
from .plateau import MIN_ROWS

if TYPE_CHECKING:
    from .outcome import Forecast


def sentence(f: "Forecast") -> str:
    """The answer, then its qualifiers where further measurements may change it."""
    heads = [] if f.notes.unformed is None else [f"no induction heads had formed by step {f.notes.unformed:,.0f}"]
    return "; ".join([_SENTENCES[f.outcome](f), *(_qualifiers(f) if f.outcome in _OPEN else []), *heads])


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


def _qualifiers(f: "Forecast") -> list[str]:
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


def _emerges(f: "Forecast") -> str:
    low, high = f.interval() or (math.nan, math.nan)
    band = f"{'' if f.notes.unlike else f'{100 * f.level:g}% interval '}{low:,.0f} to {high:,.0f}"
    return f"{_EVENTS[f.event][0]} at about step {f.step:,.0f} ({band}), {f.elapsed:.0%} elapsed"


def _no_sign(f: "Forecast") -> str:
    if f.signal == UNCALIBRATED:
        why = "without targets or a vocabulary only the entropy over all rows is measured, which predicts no end"
        return f"no forecast at step {f.now:,.0f}: {why}"
    if f.event is Event.CIRCUIT and f.probability is None:
        return f"no forecast at step {f.now:,.0f}: when induction heads form is not predicted"
    why = "" if f.probability is None else f"; before step {f.soon:,.0f} it comes with probability {f.probability:.0%}"
    if f.notes.selective is False and f.probability is None:
        why = f": heads that ignore the targets show such attention with probability {f.notes.chance:.2g}"
        why += ", more sequences in the probe tell sooner"
    return f"no believable end at step {f.now:,.0f}{why} (signal: {f.signal})"


def _not_soon(f: "Forecast") -> str:
    return f"no end is expected before step {f.soon:,.0f} (probability {f.probability or 0:.0%}, signal: {f.signal})"


def _too_early(f: "Forecast") -> str:
    if f.notes.no_level:
        return f"too early to tell at step {f.now:,.0f}: the loss has not stood at a level yet"
    if f.notes.usable_from is None:
        return f"too early to tell at step {f.now:,.0f}"
    start = f.notes.usable_from
    history = f"measurements go back to step {start / HISTORY:,.0f} only, a forecast needs step {start:,.0f}"
    return f"too early to tell at step {f.now:,.0f}: {history}"


def _emerged(f: "Forecast") -> str:
    if f.step is None:
        return f"the loss has fallen nearly to zero by step {f.now:,.0f}, without a plateau"
    return f"{_EVENTS[f.event][1]} at about step {f.step:,.0f}"


def _diverged(f: "Forecast") -> str:
    how = f": the loss is {f.notes.divergence}" if f.notes.divergence else ""
    return f"the run has diverged by step {f.now:,.0f}{how}"


def _on_plateau(f: "Forecast") -> str:
    loss = _loss(f)
    level = f"({f.signal} {loss.plateau_level:.4g})"
    text = f"on a plateau since about step {loss.plateau_since:,.0f} {level}, now at step {f.now:,.0f}"
    return f"{text}: {_slope(loss)}, flat to within {loss.bound:.2%}" if loss.slope else text


def _moving(f: "Forecast") -> str:
    return f"not on a plateau at step {f.now:,.0f}: {f.signal} {f.outcome.value}, {_slope(_loss(f))}"


def _unclear(f: "Forecast") -> str:
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


def _loss(f: "Forecast") -> LossNotes:
    return f.notes.loss or LossNotes(0, None)


_SENTENCES: dict[Outcome, "Callable[[Forecast], str]"] = {
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
