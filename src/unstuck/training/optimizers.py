"""The optimiser and the learning-rate schedule that a specification names."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from unstuck.config import RunSpec
from unstuck.config.load import from_file

OURS: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def optimizer_of(spec: RunSpec, model: nn.Module) -> torch.optim.Optimizer:
    """Ours by name, or the one class of a user's file."""
    o = spec.optim
    kind = OURS.get(o.name) or from_file("optim", Path(o.name), _is_optimizer, "torch.optim.Optimizer")
    more: dict[str, Any] = {"momentum": o.momentum} if o.momentum else {}
    if o.name == "adam":
        more["fused"] = True  # but not AdamW: its last elements round otherwise, and so part heads that are equal
    return kind(model.parameters(), lr=o.lr, weight_decay=o.weight_decay, **more)


def _is_optimizer(kind: type) -> bool:
    return issubclass(kind, torch.optim.Optimizer)


def schedule_of(spec: RunSpec, optimizer: torch.optim.Optimizer) -> ReduceLROnPlateau | None:
    """Halves the learning rate when the validation loss, seen once a pass over the data, stalls."""
    o = spec.optim
    return ReduceLROnPlateau(optimizer, factor=0.5, patience=o.patience) if o.patience else None
