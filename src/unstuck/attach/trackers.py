"""Show a run's rows in TensorBoard or Weights & Biases: observers to hand to a run, called at every row.

Both are optional: `pip install 'unstuck[trackers]'`. Weights & Biases works offline with WANDB_MODE=offline.
"""

from pathlib import Path
from typing import Any, Protocol

from unstuck.errors import InvalidCombination


class Tracker(Protocol):
    def __call__(self, run: Any) -> None: ...
    def close(self) -> None: ...


class TensorBoardTracker:
    """Writes every column of the newest row as a scalar at its step."""

    def __init__(self, directory: Path, spec: Any) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as e:
            raise InvalidCombination("TensorBoard is not installed; pip install 'unstuck[trackers]' brings it") from e
        self._writer = SummaryWriter(str(directory / spec.run_id))

    def __call__(self, run: Any) -> None:
        row = run.rows[-1]
        for name, value in row.items():
            if name != "step" and value == value:
                self._writer.add_scalar(name, value, int(row["step"]))

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    """Logs the newest row; the run's specification is its configuration."""

    def __init__(self, project: str, spec: Any) -> None:
        try:
            import wandb
        except ImportError as e:
            raise InvalidCombination(
                "Weights & Biases is not installed; pip install 'unstuck[trackers]' brings it"
            ) from e
        self._run = wandb.init(project=project, id=spec.run_id, resume="allow", config=spec.as_dict())

    def __call__(self, run: Any) -> None:
        row = run.rows[-1]
        self._run.log({k: v for k, v in row.items() if k != "step" and v == v}, step=int(row["step"]))

    def close(self) -> None:
        self._run.finish()
