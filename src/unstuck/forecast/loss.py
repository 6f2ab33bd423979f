"""What a loss shows: whether it has diverged, and whether it stands on a plateau, falls, rises or has left one."""

from dataclasses import replace
from statistics import median

import numpy as np

from unstuck.curve import Curve
from unstuck.errors import BadInput

from .events import Event
from .outcome import Forecast, LossNotes, Notes, Outcome
from .plateau import (
    MIN_ROWS,
    PLATEAU_SHARE,
    RECENT_ROWS,
    SOLVED,
    divergence,
    falls_slowly,
    plateau_left,
    plateau_since,
)


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


def from_loss(curve: Curve) -> Forecast:
    """What the loss alone says: whether it is on a plateau, and since when; it cannot say for how long."""
    column = curve.loss_name
    if column is None or not len(curve):
        raise BadInput("the curve", ", ".join(curve.columns) or "empty", "one with rows and a loss")
    curve = curve.sorted()
    steps, losses = _finite(curve, column)
    start, left = plateau_since(losses), plateau_left(losses)
    seen = LossNotes(len(losses), losses[-1] if losses else None)
    if start is not None:
        level = float(np.mean(losses[start:]))
        seen = replace(seen, plateau_since=steps[start], plateau_level=level, slow_fall=falls_slowly(losses[start:]))
    fell = None if left is None else steps[left[1]]
    said = Forecast(Outcome.UNCLEAR, float(curve.steps[-1]), column, notes=Notes(loss=seen, falling_since=fell))
    if found := if_diverged(said, curve):
        return found
    if len(losses) < MIN_ROWS:
        return said
    if fell is not None:
        return replace(said, outcome=Outcome.LEFT, step=fell)
    return replace(said, outcome=_direction(losses) if start is None else Outcome.PLATEAU)


def _finite(curve: Curve, column: str) -> tuple[list[float], list[float]]:
    """Steps and values of the rows with a finite loss."""
    there = np.isfinite(curve.values(column))
    return curve.steps[there].tolist(), curve.values(column)[there].tolist()


def _direction(losses: list[float]) -> Outcome:
    """Whether the last quarter of a loss rises or falls."""
    part = losses[-max(MIN_ROWS, len(losses) // PLATEAU_SHARE) :]
    first, second = part[: len(part) // 2], part[len(part) // 2 :]
    return Outcome.RISING if float(np.mean(second)) > float(np.mean(first)) else Outcome.FALLING


def if_diverged(said: Forecast, curve: Curve) -> Forecast | None:
    """The forecast of a run whose loss has diverged; None for any other run. The curve is in the order of steps."""
    column = curve.loss_name
    how = None if column is None else diverged(curve, column)
    if how is None:
        return None
    notes = replace(said.notes, signal_present=False, divergence=how)
    return replace(closed(said, Outcome.DIVERGED), now=float(curve.steps[-1]), notes=notes)


def if_left(said: Forecast, curve: Curve) -> Forecast | None:
    """The forecast of a run whose loss has left its plateau, or begins to; None for any other run. The curve is in the
    order of steps."""
    column = curve.loss_name
    if column is None:
        return None
    steps, losses = _finite(curve, column)
    left, now = plateau_left(losses), losses[-RECENT_ROWS:]
    emerged = closed(said, Outcome.EMERGED)
    if left is None:
        return emerged if _solved(losses) and not said.notes.signal_present and plateau_since(losses) is None else None
    step = steps[left[1]]
    if median(now) <= SOLVED * median(losses[left[0] : left[1]]):
        return replace(emerged, step=step)
    return replace(said, notes=replace(said.notes, falling_since=step))


def closed(said: Forecast, outcome: Outcome) -> Forecast:
    """A forecast of a run that has nothing left to predict: no step, no interval, no probability."""
    return replace(said, outcome=outcome, event=Event.EXIT, step=None, probability=None, distribution=None)


def _solved(losses: list[float]) -> bool:
    """Has a loss fallen nearly to zero?"""
    if len(losses) <= RECENT_ROWS:
        return False
    return 0 <= median(losses[-RECENT_ROWS:]) <= SOLVED**2 * median(losses[:RECENT_ROWS])
