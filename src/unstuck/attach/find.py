"""What a model shows of itself: how it is called, its loss, how it is distributed."""

import inspect
import os
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.attach.capture import unwrapped

TARGETS = ("targets", "target", "labels", "y")  # names of an argument that makes a model compute all logits


def rank() -> int:
    """The number of this process among those that train together."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    given = os.environ.get("RANK", "0")
    return int(given) if given.isdecimal() else 0


def why_sharded(model: nn.Module) -> str | None:
    """Why one process cannot run the model alone, if it cannot."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    wrapper = getattr(fsdp, "FullyShardedDataParallel", ())
    if any(isinstance(module, wrapper) for module in model.modules()):
        return "its parameters are sharded (FSDP)"
    if any(type(p).__name__ == "DTensor" for p in model.parameters()):
        return "its parameters are sharded (DTensor: FSDP2 or tensor parallelism)"
    if any(hasattr(p, "ds_id") for p in model.parameters()):
        return "its parameters are sharded (DeepSpeed ZeRO-3)"
    return None


def called_in_training(model: nn.Module) -> nn.Module:
    """The module whose forward pass a training calls: the model as it is wrapped, or its runnable part."""
    inner = runnable(model)
    return model if inner is unwrapped(model) else inner


def runnable(model: nn.Module) -> nn.Module:
    """The model, or, where it has no forward pass of its own, as some modules of Lightning, its largest part."""
    model = unwrapped(model)
    own = type(model).forward
    if own is nn.Module.forward or own.__qualname__ == "LightningModule.forward":
        parts = [child for child in model.children() if type(child).forward is not nn.Module.forward]
        return max(parts, key=lambda part: sum(p.numel() for p in part.parameters()), default=model)
    return model


def is_of_another_model(optimizer: Any, model: nn.Module) -> bool:
    """Has an optimiser parameters, and none of them in common with the model?"""
    given = {id(p) for group in getattr(optimizer, "param_groups", ()) for p in group["params"]}
    return bool(given) and given.isdisjoint(map(id, model.parameters()))


def forms(model: nn.Module) -> list[Any]:
    """Ways in which a model may take token indices, (n, T), the likeliest first."""
    try:
        names = [name for name in inspect.signature(model.forward).parameters if name != "self"]
    except (TypeError, ValueError):
        names = []
    if "input_ids" in names:
        return [lambda tokens: {"input_ids": tokens}]
    found: list[Any] = [lambda tokens: tokens]
    if len(names) > 1 and names[1] in TARGETS:
        found.append(lambda tokens: (tokens, tokens))
    return found


def loss_in(output: Any) -> Tensor | None:
    """The loss that a model's output has: `loss` in it, a number in a tuple, or the output itself."""
    if isinstance(output, Mapping):
        found = [output.get("loss")]
    elif isinstance(output, (tuple, list)) and not hasattr(output, "loss"):
        found = list(output)
    else:
        found = [getattr(output, "loss", output)]
    for value in found:
        if isinstance(value, Tensor) and value.numel() == 1 and value.requires_grad:
            return value.detach()
    return None


def sequences(args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int) -> Any:
    """A copy of the first sequences of a batch, as a model was called with them."""

    def cut(value: Any) -> Any:
        return value[:most].detach().clone() if isinstance(value, Tensor) and value.dim() else value

    if kwargs:
        return {name: cut(value) for name, value in kwargs.items()} if not args else None
    return tuple(map(cut, args))


def token_length(batch: Any) -> int | None:
    """The length of the sequences of token indices in a batch; None where there are none."""
    tokens = _tokens(batch)
    return None if tokens is None else tokens.shape[1]


def _tokens(batch: Any) -> Tensor | None:
    """The token indices, (n, T), of a batch: `input_ids`, or the first tensor that may hold them."""
    if isinstance(batch, Mapping):
        parts = [batch["input_ids"]] if "input_ids" in batch else list(batch.values())
    else:
        parts = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    whole = [x for x in parts if isinstance(x, Tensor) and x.dim() == 2 and not x.is_floating_point()]
    return next((x for x in whole if x.dtype != torch.bool), None)


def tokens_in(batch: Any, vocabulary: int, most: int) -> list[int]:
    """The tokens of a vocabulary that occur in a batch, at most so many: those that occur most often.

    Examples:
        >>> tokens_in((torch.tensor([[7, 2, 2, 5], [5, 2, -100, 9]]),), vocabulary=9, most=2)
        [2, 5]
    """
    tokens = _tokens(batch)
    if tokens is None:
        return []
    counts = torch.bincount(tokens[(tokens >= 0) & (tokens < vocabulary)].detach().flatten().cpu(), minlength=1)
    often = torch.sort(counts, descending=True, stable=True).indices[:most]
    return sorted(often[counts[often] > 0].tolist())
