"""What a run leaves: a `Checkpoint` while it is under way, a `RunResult` at its end."""

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from unstuck.curve import Curve

Status = Literal["emerged", "censored", "diverged", "finished", "stopped"]


@dataclass
class Checkpoint:
    """All that the next step depends on."""

    step: int
    tensors: dict[str, Tensor]
    watch: dict[str, Any]
    rows: list[dict[str, float]]
    pending: tuple[float, int]  # sum and number of training losses since the last row
    next_row: int
    grad_norm: float  # of the last step, for a row that may come before the next
    seconds: float
    evaluating: float  # of those seconds
    schedule: dict[str, Any] = field(default_factory=dict)  # of the learning rate
    maps: list[int] = field(default_factory=list)  # steps at which attention was to be kept
    compare: list[str] | None = None  # the runs whose predictions are compared with, in this order
    pending_measure: float = 0.0  # sum of the deciding measure since the last row, where that is not the loss
    diversity: dict[str, Any] = field(default_factory=dict)  # of the schedule of repetition
    unread: list[tuple[float, float]] = field(default_factory=list)  # losses and measures that nothing has used yet


@dataclass
class RunResult:
    """What a run came to. `plateau_steps` is the crossing of the last listed threshold, None unless it emerged."""

    status: Status
    plateau_steps: float | None
    threshold: float | None
    crossings: dict[str, float]
    watched: list[float]  # the thresholds that were looked out for from the start
    steps: int
    final: dict[str, float]
    seconds: float
    resumed_from: int
    evaluation_share: float  # of the time
    curve: Curve = field(repr=False)
    crossings_in_text: dict[str, float] | None = None  # of copying at the end of a text; None where it is not measured
