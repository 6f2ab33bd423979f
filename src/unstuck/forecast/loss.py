"""What a loss shows: whether it has diverged, and whether it stands on a plateau, falls, rises or has left one."""

import math
from dataclasses import replace
from statistics import median

import numpy as np

from unstuck.curve import Curve
from unstuck.errors import BadInput

from .events import Event, ExitRule, finite_loss
from .notes import LossNotes, Notes, Outcome
from .outcome import Forecast
from .plateau import RECENT_ROWS, PlateauTest, Trend, divergence


def diverged(curve: Curve, column: str) -> str | None:
    """How a loss of a curve, in the order of steps, has diverged; None where it has not. A loss that is no longer
    logged has not diverged if another one still is; and what is not called a loss may rise."""
    losses = curve.values(column)
    how = divergence(curve.steps, losses)
    if how is None or np.isinf(losses[-1]):
        return how
    if how != "not finite":
        return how if "loss" in column.lower() else None
    others = [curve.values(c)[-RECENT_ROWS:] for c in curve.losses if c != column]
    return None if others and np.isfinite(others).any() else how


def from_loss(curve: Curve, test: PlateauTest = PlateauTest()) -> Forecast:
    """What the loss alone says: whether it is on a plateau, and since when; it cannot say for how long."""
    column = curve.loss_name
    if column is None or not len(curve):
        raise BadInput("the curve", ", ".join(curve.columns) or "empty", "one with rows and a loss")
    curve = curve.sorted()
    steps, losses = (values.tolist() for values in finite_loss(curve))
    trend = test.trend(steps, losses)
    left = _left(test, steps, losses, trend)
    seen = LossNotes(len(losses), losses[-1] if losses else None, fell=_fell(losses))
    if math.isfinite(trend.low):
        seen = replace(seen, slope=(trend.slope, trend.low, trend.high), bound=test.bound)
    if trend.is_flat and left is None:
        seen = replace(seen, plateau_since=steps[test.since(steps, losses, trend)], plateau_level=trend.level)
    fell = None if left is None else steps[left[1]]
    said = Forecast(Outcome.UNCLEAR, float(curve.steps[-1]), column, notes=Notes(loss=seen, falling_since=fell))
    if found := if_diverged(said, curve):
        return found
    if fell is not None:
        return replace(said, outcome=Outcome.LEFT, step=fell)
    return replace(said, outcome=_direction(trend))


def _direction(trend: Trend) -> Outcome:
    if trend.is_flat:
        return Outcome.PLATEAU
    return Outcome.FALLING if trend.falls else Outcome.RISING if trend.rises else Outcome.UNCLEAR


def _fell(losses: list[float]) -> tuple[float, float] | None:
    """The medians of the first and of the last rows, if the loss fell to a level at which nothing is left to
    learn."""
    if len(losses) < 2 * RECENT_ROWS:
        return None
    first, last = median(losses[:RECENT_ROWS]), median(losses[-RECENT_ROWS:])
    return (first, last) if 0 <= last <= ExitRule.done * first else None


def _left(test: PlateauTest, steps: list[float], losses: list[float], trend: Trend) -> tuple[int, int] | None:
    """The plateau that a loss has left, as `PlateauTest.left`; None where it is at rest at what may be the next one."""
    left = test.left(steps, losses)
    if left is None or not trend.is_flat or test.since(steps, losses, trend) < left[1]:
        return left
    level = median(losses[left[0] : left[1]])
    return left if 0 <= median(losses[-RECENT_ROWS:]) <= ExitRule.done * level else None


def if_diverged(said: Forecast, curve: Curve) -> Forecast | None:
    """The forecast of a run whose loss has diverged; None for any other run. The curve is in the order of steps."""
    column = curve.loss_name
    how = None if column is None else diverged(curve, column)
    if how is None:
        return None
    notes = replace(said.notes, signal_present=False, divergence=how)
    return replace(closed(said, Outcome.DIVERGED), now=float(curve.steps[-1]), notes=notes)


def without_level(said: Forecast, curve: Curve) -> Forecast:
    """The forecast of a run whose loss has not stood at a level yet, so that there is none to leave: what the loss
    shows, if it falls or has left a plateau; else it is too early to tell."""
    seen = from_loss(curve)
    if seen.outcome in (Outcome.FALLING, Outcome.LEFT):
        return replace(seen, level=said.level, notes=replace(seen.notes, no_level=True))
    return replace(closed(said, Outcome.TOO_EARLY), notes=replace(said.notes, no_level=True))


def closed(said: Forecast, outcome: Outcome) -> Forecast:
    """A forecast of a run that has nothing left to predict: no step, no interval, no probability."""
    return replace(said, outcome=outcome, event=Event.EXIT, step=None, probability=None, distribution=None)
