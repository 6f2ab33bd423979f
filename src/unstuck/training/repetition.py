"""The diversity schedule in our own loop: which task to train on now, and what the schedule is told beside the loss."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pandas as pd
from pydantic import ValidationError

from unstuck.errors import BadInput
from unstuck.forecast.forecaster import Forecaster
from unstuck.forecast.signals import available
from unstuck.spec import RunSpec
from unstuck.tasks.task import Task

from .diversity import DiversitySchedule
from .emergence import next_look

ADVICE = 5  # times in its patience that the schedule is told of clean data


class Repetition:
    """A run's task under `schedule.name=adaptive`: it repeats p or B as the schedule says."""

    def __init__(self, spec: RunSpec) -> None:
        s = spec.schedule
        self.clean: Task = spec.task
        self.key = s.key
        self.every = s.patience // ADVICE
        self.schedule = DiversitySchedule(s.most, patience=s.patience)
        self.next_advice = 0
        self.signs: list[dict[str, float]] = []  # attention, as it was looked at for forecasts

    @property
    def task(self) -> Task:
        """What is trained on now."""
        task: Task = repeating(self.clean, self.key, self.schedule.repetition)
        return task

    @property
    def added(self) -> float:
        """How much more is repeated than the task itself repeats."""
        return float(getattr(self.task, self.key) - getattr(self.clean, self.key))

    def advise(self, step: int, loss: Callable[[], float], attention: Callable[[], dict[str, float]]) -> None:
        """Tell the schedule what it cannot know from training, at steps that depend on nothing but its settings:
        the loss on clean data, and a forecast before it first repeats."""
        if step < self.next_advice or self.schedule.stage == "done":
            return
        self.next_advice = step + self.every
        self.schedule.measured(loss())
        if self.schedule.stage == "diverse":
            self.signs.append({"step": step, **attention()})
            self.next_advice = next_look(step, self.every)
            signs = pd.DataFrame(self.signs)
            if "gain" in available(signs):  # not `links`: what runs under this version of the schedule went by
                self.schedule.forecasted(Forecaster("gain").of_curve(signs))

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.schedule.state_dict(), "signs": list(self.signs), "next": self.next_advice}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.schedule.load_state_dict(state["state"])
        self.signs, self.next_advice = list(state["signs"]), state["next"]


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
