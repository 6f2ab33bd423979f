"""The repetition schedule in the training loop: which task to train on now, and what the schedule is given."""

from collections.abc import Callable
from typing import Any

from unstuck.columns import REPETITION, Row
from unstuck.config import RunSpec
from unstuck.curve import Curve
from unstuck.forecast.forecaster import Forecaster
from unstuck.tasks._repeating import repeating
from unstuck.tasks.task import Task
from unstuck.training.emergence import next_measurement
from unstuck.training.repetition import ConstantRepetition

from .diversity import DiversitySchedule

ADVICE = 5  # times in its patience that the schedule gets the loss on clean data


class Repetition(ConstantRepetition):
    """The task of a run under `schedule.name=adaptive`, with as much of p or B as the repetition schedule decides."""

    def __init__(self, spec: RunSpec) -> None:
        s = spec.schedule
        super().__init__(spec.task)
        self.key = s.key
        self.every = s.patience // ADVICE
        self.forecaster = Forecaster("attention", task=spec.task_name)
        self.schedule = DiversitySchedule(s.most, patience=s.patience)
        self.next_advice = 0
        self.signs: list[dict[str, float]] = []  # attention, as it was measured for forecasts

    @property
    def task(self) -> Task:
        """What is trained on now."""
        task: Task = repeating(self.clean, self.key, self.schedule.repetition)
        return task

    @property
    def added(self) -> float:
        """How much more is repeated than the task itself repeats."""
        return float(getattr(self.task, self.key) - getattr(self.clean, self.key))

    @property
    def columns(self) -> Row:
        return {REPETITION: self.added}

    def advise(self, step: int, loss: Callable[[], float], attention: Callable[[], dict[str, float]]) -> None:
        """Give the schedule what training does not show, at steps that depend on its settings alone: the loss on clean
        data, and a forecast before it first repeats."""
        if step < self.next_advice or self.schedule.stage == "done":
            return
        self.next_advice = step + self.every
        self.schedule.measured(loss())
        if self.schedule.stage == "diverse":
            self.signs.append({"step": step, **attention()})
            self.next_advice = next_measurement(step, self.every)
            attention_only = Curve.from_rows(self.signs).complete("attention")  # as stored runs of this version
            if len(attention_only):
                self.schedule.forecasted(self.forecaster.from_attention(attention_only))

    def learnt(self, loss: float) -> None:
        self.schedule.step(loss)

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.schedule.state_dict(), "signs": list(self.signs), "next": self.next_advice}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.schedule.load_state_dict(state["state"])
        self.signs, self.next_advice = list(state["signs"]), state["next"]


def repetition_of(spec: RunSpec) -> Repetition | None:
    """What decides how much a run repeats, if its specification asks for that."""
    return Repetition(spec) if spec.schedule.name == "adaptive" else None
