"""Checks of what users give a `Watch`: targets, token indices, their own weights; and a hash of its probe."""

import hashlib
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unstuck.columns import MEASURES
from unstuck.errors import BadInput

TARGETS = ("attention", "copying")  # measures whose positions a user names


def indices(vocabulary: Any) -> Tensor:
    """The different token indices of a vocabulary: a number of them, or the indices themselves."""
    wanted = "a number of tokens, or a list of their indices"
    try:
        known = torch.arange(int(vocabulary)) if isinstance(vocabulary, Integral) else torch.as_tensor(vocabulary)
    except (TypeError, ValueError, RuntimeError) as e:
        raise BadInput("vocabulary", vocabulary, wanted) from e
    if known.dtype == torch.bool or known.is_floating_point() or known.is_complex() or (known < 0).any():
        raise BadInput("vocabulary", vocabulary, f"{wanted}, whole numbers from 0 on")
    known = known.flatten().long().unique()
    if len(known) < 2:
        raise BadInput("vocabulary", vocabulary, f"{wanted}, at least 2")
    return known


def masks(targets: Any, probe: Any) -> dict[str, Tensor]:
    """The masks by the prefix of their columns, which is also their old name."""
    if targets is None:
        return {}
    attention, copying = (MEASURES[name] for name in TARGETS)
    by_name = {
        MEASURES.get(k, k): v for k, v in (targets if isinstance(targets, Mapping) else {attention: targets}).items()
    }
    if not {attention} <= set(by_name) <= {attention, copying}:
        raise BadInput("targets", ", ".join(map(str, by_name)) or "empty", f"masks named {' and '.join(TARGETS)}")
    return {name: _mask(mask, probe) for name, mask in by_name.items()}


def _mask(targets: Any, probe: Any) -> Tensor:
    wanted = "True or False in (n, columns) or (n, rows, columns), beside `probe`, an input of n sequences"
    if probe is None:
        raise BadInput("targets", "given without a probe", wanted)
    try:
        mask = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError) as e:
        raise BadInput("targets", targets, wanted) from e
    if not (mask.is_floating_point() or mask.is_complex()) and ((mask == 0) | (mask == 1)).all():
        mask = mask.bool()
    if mask.dtype != torch.bool or mask.dim() not in (2, 3):
        raise BadInput("targets", f"{mask.dtype} in {tuple(mask.shape)}", wanted)
    if not mask.any():
        raise BadInput("targets", "False everywhere", "True for the tokens to attend to")
    return mask


def shapes_of(probe: Any) -> str:
    """The shapes of the tensors of a probe, for an error.

    Examples:
        >>> shapes_of({"input_ids": torch.zeros(4, 9), "use_cache": False})
        '(4, 9)'
    """
    parts = probe.values() if isinstance(probe, Mapping) else probe if isinstance(probe, (tuple, list)) else [probe]
    found = dict.fromkeys(str(tuple(part.shape)) for part in parts if isinstance(part, Tensor))
    return " and ".join(found) or type(probe).__name__


def own_weights(weights: Any) -> Tensor:
    """The weights of a layer from a user's function, checked."""
    wanted = "the attention weights of a layer, a tensor of (n, heads, rows, columns)"
    if not isinstance(weights, Tensor) or weights.dim() != 4:
        shape = f" in {tuple(weights.shape)}" if hasattr(weights, "shape") else ""
        raise BadInput("what `attention` gave", f"{type(weights).__name__}{shape}", wanted)
    total = weights.float().sum(-1)
    if (total > 1.02).any() or (weights < -0.02).any():  # less if a sink was left out; NaN passes
        raise BadInput(
            "what `attention` gave", "a tensor whose rows sum to more than 1", f"{wanted}, after the softmax"
        )
    return weights


def mark(*given: Any) -> str:
    """A hash of all tensors and plain values in what is given: equal for equal values, also after a resume."""
    digest = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, Mapping):
            for name in sorted(value, key=str):
                digest.update(str(name).encode())
                add(value[name])
        elif isinstance(value, (tuple, list)):
            digest.update(f"{len(value)}".encode())
            for part in value:
                add(part)
        elif isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc"):
            plain = torch.as_tensor(value).detach().cpu().contiguous()
            digest.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
            digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(value, (str, int, float, bool)):
            digest.update(repr(value).encode())

    add(given)
    return digest.hexdigest()[:16]
