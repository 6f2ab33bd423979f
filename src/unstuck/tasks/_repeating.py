"""A task that repeats more than it does by itself."""

import dataclasses
import math
from typing import Any

from pydantic import ValidationError

from unstuck.errors import BadInput


def repeating(task: Any, key: str, repetition: float) -> Any:
    """The task with `repetition` more of p or B than it has itself; where that must be whole, at least one more."""
    if not hasattr(task, key):
        raise BadInput("schedule.key", key, f"a setting of the task, which has {', '.join(vars(task))}")
    if not repetition:
        return task
    now = getattr(task, key)
    whole = isinstance(now, int) and not isinstance(now, bool)
    value = now + (max(1, math.floor(repetition + 0.5)) if whole else repetition)
    try:
        return dataclasses.replace(task, **{key: value})
    except (ValidationError, ValueError) as e:
        raise BadInput("schedule.most", repetition, f"such that the task can have {key} = {value:g}") from e
