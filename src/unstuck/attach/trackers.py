"""Log a run to TensorBoard or Weights & Biases: observers that a run calls after every row.

Both are optional: `pip install 'unstuck[trackers]'`. Weights & Biases works offline with WANDB_MODE=offline.
"""

from pathlib import Path
from typing import Any, Protocol

from unstuck.columns import STEP
from unstuck.errors import InvalidCombination
from unstuck.extras import require


class Tracker(Protocol):
    def __call__(self, run: Any) -> None: ...
    def close(self) -> None: ...


class TensorBoardTracker:
    """Writes every column of the newest row as a scalar at its step."""

    def __init__(self, directory: Path, spec: Any) -> None:
        require("trackers", "logging to TensorBoard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter  # optional

        self._writer = SummaryWriter(str(directory / spec.run_id))

    def __call__(self, run: Any) -> None:
        row = run.rows[-1]
        for name, value in row.items():
            if name != STEP and value == value:
                self._writer.add_scalar(name, value, int(row[STEP]))

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    """Logs the newest row; the run's specification is its configuration."""

    def __init__(self, project: str, spec: Any) -> None:
        require("trackers", "logging to Weights & Biases", "wandb")
        import wandb  # optional

        try:
            self._run = wandb.init(project=project, id=spec.run_id, resume="allow", config=spec.as_dict())
        except (wandb.Error, ValueError) as e:
            why = " ".join(str(e).split())
            advice = "`wandb login` logs in, and WANDB_MODE=offline needs no login"
            raise InvalidCombination(f"Weights & Biases does not start ({why}); {advice}") from e

    def __call__(self, run: Any) -> None:
        row = run.rows[-1]
        self._run.log({k: v for k, v in row.items() if k != STEP and v == v}, step=int(row[STEP]))

    def close(self) -> None:
        self._run.finish()
