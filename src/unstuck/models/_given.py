"""A PyTorch module as it is: what `unstuck.train(task, module)` trains."""

import copy
import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn


@dataclass(frozen=True)
class Given:
    """A module handed over ready made. `digest` tells two of them apart: their layout and what they start from."""

    version: ClassVar[int] = 1

    digest: str

    @classmethod
    def of(cls, module: nn.Module) -> "Given":
        digest = hashlib.sha256(repr(module).encode())
        for name, value in module.state_dict().items():
            digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
        given = cls(digest.hexdigest()[:12])
        object.__setattr__(given, "_module", module)
        return given

    def build(self, task: Any, rng: torch.Generator) -> nn.Module:
        """A copy, so that the module handed over stays as it is."""
        return copy.deepcopy(vars(self)["_module"])
