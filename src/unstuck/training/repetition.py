"""What a step trains on: by default the run's own task, unchanged. `schedule/repetition.py` has one that adapts."""

from collections.abc import Callable
from typing import Any

from unstuck.columns import Row
from unstuck.tasks.task import Task


class ConstantRepetition:
    """Repeats as much data as the task itself does, at every step."""

    def __init__(self, task: Task) -> None:
        self.clean = task

    @property
    def task(self) -> Task:
        """What is trained on now."""
        return self.clean

    @property
    def columns(self) -> Row:
        """What a row of the curve says about it."""
        return {}

    def advise(self, step: int, loss: Callable[[], float], attention: Callable[[], dict[str, float]]) -> None:
        """Before a step: the loss on clean data and attention may be asked for."""

    def learnt(self, loss: float) -> None:
        """After a step: its loss."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
