"""Base of tasks whose answer is one token, read at the last position: cross-entropy, and how often it is right."""

from torch import Tensor
from torch.nn import functional as F

from .task import Batch, Task


class Answered(Task):
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of each sequence."""
        return F.cross_entropy(outputs, targets, reduction="none")

    def measures(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        right = (outputs.argmax(-1) == batch.targets).to(outputs.dtype)
        return {"loss": self.losses(outputs, batch.targets), "accuracy": right}
