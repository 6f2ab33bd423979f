"""What the loop asks of whoever decides how much data repeat; `schedule/repetition.py` does, and is handed in."""

from collections.abc import Callable
from typing import Any, Protocol

from unstuck.tasks.task import Task


class Repeats(Protocol):
    @property
    def task(self) -> Task:
        """What is trained on now."""

    @property
    def added(self) -> float:
        """How much more is repeated than the task itself repeats."""

    def advise(self, step: int, loss: Callable[[], float], attention: Callable[[], dict[str, float]]) -> None:
        """Before a step: the loss on clean data and attention may be asked for."""

    def learnt(self, loss: float) -> None:
        """After a step: its loss."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
