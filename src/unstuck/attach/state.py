"""Is a model the same as at an earlier measurement, so that another one would show the same?"""

import itertools
from typing import Any

import torch
from torch import Tensor, nn

State = tuple[Any, ...]


def state_of(model: nn.Module) -> State | None:
    """What is equal at two moments only if no parameter or buffer has changed between them, no plain attribute of a
    module, and not autocast; None where that is not known. A tensor is compared by its place, the number of changes
    that PyTorch counts, and its sum, since a change of `.data` is not counted. Training and evaluation mode are no
    part of it: a measurement is the same in both."""
    tensors = list(itertools.chain(model.parameters(), model.buffers()))
    try:
        known = tuple((x.data_ptr(), x._version, _sum(x)) for x in tensors)
        device = tensors[0].device.type if tensors else "cpu"
        autocast = (torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device)))
    except (RuntimeError, NotImplementedError):  # such as a tensor without values, or of a kind that has no sum
        return None
    return known, autocast, tuple(_plain_attributes(model))


def _sum(tensor: Tensor) -> str:
    dtype = torch.complex128 if tensor.is_complex() else torch.float64
    return repr(tensor.detach().sum(dtype=dtype).item())


def _plain_attributes(model: nn.Module) -> list[tuple[str, str, str]]:
    return [
        (name, key, repr(value))
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key != "training" and isinstance(value, (str, int, float, bool))
    ]
