"""What a model tells of itself: its vocabulary, its context, how it is called, its loss, how it is distributed."""

import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.attach.capture import unwrapped
from unstuck.scalars import is_whole

#: Under these names configurations and models keep the length of the longest sequence.
CONTEXTS = (
    "block_size",
    "n_positions",
    "max_position_embeddings",
    "n_ctx",
    "context_length",
    "context_len",
    "max_seq_len",
    "max_seq_length",
    "seq_len",
    "seq_length",
    "sequence_length",
    "max_len",
    "context",
)
VOCABULARIES = ("vocab_size", "n_vocab", "vocabulary", "vocabulary_size", "num_tokens", "n_tokens")
POSITIONS = ("pos", "wpe", "place")  # parts of the names of embeddings of positions
OTHER_EMBEDDINGS = (*POSITIONS, "segment", "token_type", "type_emb")
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


def runnable(model: nn.Module) -> nn.Module:
    """The model, or, where it has no forward pass of its own, as some modules of Lightning, its largest part."""
    model = unwrapped(model)
    own = type(model).forward
    if own is nn.Module.forward or own.__qualname__ == "LightningModule.forward":
        parts = [child for child in model.children() if type(child).forward is not nn.Module.forward]
        return max(parts, key=lambda part: sum(p.numel() for p in part.parameters()), default=model)
    return model


def _configurations(model: nn.Module) -> Iterator[Any]:
    """The model's configuration, that of its text part, and the model itself."""
    config = getattr(model, "config", getattr(model, "cfg", None))
    if config is not None:
        yield config
        if (text := getattr(config, "text_config", None)) is not None:
            yield text
    yield model


def _value(config: Any, name: str) -> int | None:
    found: Any = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    return int(found) if is_whole(found) and found > 0 else None


def _named(model: nn.Module, names: tuple[str, ...]) -> int | None:
    known = (_value(config, name) for config in _configurations(model) for name in names)
    return next((value for value in known if value is not None), None)


def vocabulary(model: nn.Module) -> int | None:
    """How many tokens a language model knows: from its configuration, or the largest of its embeddings that is not one
    of positions; None where there is none."""
    tables = [(name.lower(), m) for name, m in model.named_modules() if isinstance(m, nn.Embedding)]
    sizes = [m.num_embeddings for name, m in tables if not any(part in name for part in OTHER_EMBEDDINGS)]
    known = _named(model, VOCABULARIES)
    if known is None:
        return max(sizes, default=None)
    fits = [size for size in sizes if size >= known]
    return known if fits or not sizes else max(sizes)  # beyond an embedding there is no token


def context(model: nn.Module) -> int | None:
    """The longest sequence that a model takes: the least of what its configuration says and of its tables of positions;
    None where it says nothing."""
    known = [_value(config, name) for config in _configurations(model) for name in CONTEXTS]
    tables = [
        m.num_embeddings
        for name, m in model.named_modules()
        if isinstance(m, nn.Embedding) and any(part in name.lower() for part in POSITIONS)
    ]
    learnt = [
        p.shape[-2]
        for name, p in model.named_parameters()
        if p.dim() >= 2 and any(part in name.lower().rpartition(".")[2] for part in POSITIONS)
    ]
    return min([value for value in (*known, *tables, *learnt) if value is not None], default=None)


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
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else [batch]
    whole = [x for x in parts if isinstance(x, Tensor) and x.dim() == 2 and not x.is_floating_point()]
    return next((x.shape[1] for x in whole if x.dtype != torch.bool), None)
