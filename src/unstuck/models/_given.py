"""A ready-made PyTorch module, as `unstuck.train(task, module)` takes it."""

import copy
import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn


@dataclass(frozen=True)
class Given:
    """A ready-made module. `digest` is a hash of its layout and its initial weights."""

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
        """A copy, so that the given module does not change."""
        return copy.deepcopy(vars(self)["_module"])
