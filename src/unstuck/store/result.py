"""What a run came to, as its status.json holds it."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_serializer

Status = Literal["emerged", "censored", "diverged", "finished", "stopped"]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be finite")
    return value


def _is_threshold(name: str) -> str:
    _finite(float(name))
    return name


Number = int | float  # as it was written, so that it is written the same way again
Finite = Annotated[Number, AfterValidator(_finite)]
Threshold = Annotated[str, AfterValidator(_is_threshold)]  # as f"{x:g}" writes it
Steps = Annotated[int, Field(ge=0, lt=10**18)]


class Result(BaseModel):
    """A run's result without its curve. `plateau_steps` is the crossing of the last threshold, None unless it emerged.

    What older versions did not write is missing, and stays so: `model_dump` gives what was read, in the same order.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    status: Status
    plateau_steps: Finite | None = None
    threshold: Finite | None = None
    crossings: dict[Threshold, Finite]
    crossings_in_text: dict[Threshold, Finite] | None = None  # of copying at the end of a text; None: not measured
    watched: list[Finite] | None = None  # the thresholds that were looked out for from the start
    steps: Steps
    final: dict[str, Number]
    seconds: Number
    resumed_from: Steps = 0
    evaluation_share: Number = 0.0  # of the time
    circuit: dict[str, Any] | None = None
    compared: list[str] = []  # ids of the runs that ref_1, ref_2, ... are about
    predicted: bool = False  # have its predictions been kept?
    mapped: list[Steps] = []  # steps whose attention has been kept

    @classmethod
    def of(cls, result: Any) -> "Result":
        """The result that a run of the training loop returns."""
        return cls.model_validate({k: v for k, v in vars(result).items() if k != "curve"})

    @property
    def thresholds(self) -> list[float]:
        """The thresholds that the run looked out for; for results that do not say, those that they mention."""
        if self.watched is not None:
            return list(self.watched)
        last = [] if self.threshold is None else [self.threshold]
        return sorted({*map(float, self.crossings), *last})

    @property
    def crossing_columns(self) -> dict[str, Number]:
        """The crossings as cells of a table: `crossing_2`, and `crossing_in_text_2`."""
        decides = {f"crossing_{name}": step for name, step in self.crossings.items()}
        return decides | {f"crossing_in_text_{name}": step for name, step in (self.crossings_in_text or {}).items()}

    @model_serializer(mode="wrap")
    def _as_written(self, dump: Any) -> dict[str, Any]:
        unset = {name for name in ("circuit", "crossings_in_text") if getattr(self, name) is None}
        return {k: v for k, v in dump(self).items() if k in self.model_fields_set - unset}
