"""A run on a GPU: where its tensors are made, and how seldom the host waits for them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from unstuck.config import RunSpec

READ_EVERY = 20  # steps between reads of the training loss on a GPU


def steps_between_reads(spec: RunSpec) -> int:
    """Reading a loss makes the host wait for a GPU; a schedule of repetition has to know each at once."""
    if spec.schedule.name != "none":
        return 1
    return spec.train.read_every or (1 if spec.train.device == "cpu" else READ_EVERY)


def on_device(device: str) -> AbstractContextManager[Any]:
    """Where tensors are made that do not say where; a CPU needs no telling."""
    return nullcontext() if device == "cpu" else torch.device(device)


def numbers(values: Sequence[Tensor | float]) -> list[float]:
    """Tensors of one number as floats, in one read; floats as they are."""
    tensors = [x for x in values if isinstance(x, Tensor)]
    read = iter(torch.stack(tensors).tolist() if tensors else ())
    return [next(read) if isinstance(x, Tensor) else x for x in values]
