"""The attention weights of any model, for one batch, without changing the model.

Fast kernels return no weights. While the model runs on the batch, its attention calls are intercepted (`recorder.py`),
and their weights computed again from queries and keys (`weights.py`). The model itself runs unchanged: same
implementation, same numbers. Only a Hugging Face model whose kernel PyTorch does not see runs with one that it sees,
for the measurement alone. Weights without a batch or heads get an axis of length 1 for them.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from unstuck.attach.configuration import configured
from unstuck.attach.messages import log
from unstuck.attach.recorder import Recorder, Take
from unstuck.attach.weights import Blocks

#: Beginnings of the names of Hugging Face's kernels that call no function of PyTorch which could be seen.
UNSEEN_KERNELS = ("flash", "flex", "paged", "sage", "kernels-")
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "nhead")  # names in configurations
_SAID_ONE_HEAD: "WeakSet[nn.Module]" = WeakSet()
_HEADS_FIRST: "WeakKeyDictionary[nn.Module, frozenset[int]]" = WeakKeyDictionary()


def beside(model: nn.Module, inputs: Any) -> Any:
    """Tensors on the device of a model's first parameter, also in tuples, lists and mappings: a model may have moved
    since they were made. Objects that need no move are returned as they are, and so are all for a model whose
    parameters are loaded layer by layer (device `meta`)."""
    device = next((p.device for p in model.parameters()), None)

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(device)
        if isinstance(value, Mapping):
            parts = {name: moved(part) for name, part in value.items()}
            return value if all(parts[name] is value[name] for name in value) else parts
        if not isinstance(value, (tuple, list)):
            return value
        several = [moved(part) for part in value]
        if all(new is old for new, old in zip(several, value, strict=True)):
            return value
        return type(value)(*several) if hasattr(value, "_fields") else type(value)(several)

    return inputs if device is None or device.type == "meta" else moved(inputs)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside compiled and distributed wrappers: one process measures, and the forward pass of the latter
    would wait for the others."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def can_run(model: nn.Module) -> bool:
    """Has a model its parameters? Those of lazy layers are made at the first run, which must be one of the training."""
    return not any(p.device.type == "meta" or isinstance(p, nn.UninitializedParameter) for p in model.parameters())


def _uncompiled() -> AbstractContextManager[Any]:
    """Compiled parts run eagerly, so that their calls are intercepted and nothing is compiled for a measurement. Not
    needed where nothing was compiled, and not possible within a compilation."""
    if "torch._dynamo" not in sys.modules or torch.compiler.is_compiling():
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """During a measurement: no dropout, gradients or compilation; afterwards modes and random states are restored, also
    those of NumPy and Python, since a model may draw from them."""
    training = [module for module in model.modules() if module.training]
    devices = [p.device for p in model.parameters() if p.device.type == "cuda"][:1]
    drawn, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.no_grad(), torch.random.fork_rng(devices=devices), _uncompiled():
        try:
            for module in training:  # not by eval(), which changes weights in some models
                module.training = False
            yield
        finally:
            for module in training:
                module.training = True
            random.setstate(drawn)
            np.random.set_state(numpys)  # noqa: NPY002


@contextmanager
def seen_kernels(model: nn.Module) -> Iterator[None]:
    """A Hugging Face model with a kernel that can be seen, if its own cannot: `sdpa`, or `eager` where the model has no
    other."""
    found: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs = {id(c): c for c in found if hasattr(c, "_attn_implementation")}
    changed = [(c, c._attn_implementation) for c in configs.values()]
    changed = [(c, name) for c, name in changed if "/" in str(name) or str(name).startswith(UNSEEN_KERNELS)]
    other = "sdpa" if all(getattr(m, "_supports_sdpa", True) for m in model.modules()) else "eager"
    try:
        for config, _ in changed:
            config._attn_implementation = other
        yield
    finally:
        for config, name in changed:  # the outermost first, since it may set those within
            config._attn_implementation = name


def each_layer(model: nn.Module, inputs: Any, take: Take) -> Any:
    """Pass the number and the weights of every attention call of the model on `inputs` to `take`, in the order of the
    calls; only some rows of one layer are in memory at a time. Returns the model's output."""
    model = unwrapped(model)
    inputs = beside(model, inputs)
    output, merged = _run(model, inputs, take, _HEADS_FIRST.get(model, frozenset()))
    if merged and model not in _HEADS_FIRST:  # (n * heads, rows, columns), or is it (heads * n, rows, columns)?
        _HEADS_FIRST[model] = _heads_first(model, inputs, merged)
        if _HEADS_FIRST[model]:
            output, _ = _run(model, inputs, take, _HEADS_FIRST[model])
    return output


def _run(model: nn.Module, inputs: Any, take: Take, heads_first: frozenset[int]) -> tuple[Any, set[int]]:
    recorder = Recorder(take, _sequences(inputs), heads_first, next(configured(model, HEADS), None))
    with undisturbed(model), seen_kernels(model), recorder:
        output = called(model, inputs)
    if recorder.unsplit and model not in _SAID_ONE_HEAD:
        _SAID_ONE_HEAD.add(model)
        log.warning(
            "attention over a first axis of %s, for %s sequences, is read as one head: the number of heads is not "
            "known, and `config.num_heads` of the model would give it",
            " or ".join(map(str, sorted(recorder.unsplit))),
            recorder.sequences,
        )
    return output, recorder.merged


def called(model: nn.Module, inputs: Any) -> Any:
    """The output of a model on a tensor, a tuple of arguments or a mapping of them."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))


def _tensors(inputs: Any) -> list[Tensor]:
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs
    return [x for x in (parts if isinstance(inputs, (Mapping, tuple, list)) else [inputs]) if isinstance(x, Tensor)]


def _sequences(inputs: Any) -> int | None:
    return next((len(x) for x in _tensors(inputs) if x.dim()), None)


def _heads_first(model: nn.Module, inputs: Any, merged: set[int]) -> frozenset[int]:
    """The layers whose weights are (heads * n, rows, columns): on the same sequence twice, neighbours are equal."""
    n = _sequences(inputs)

    def twice(value: Any) -> Any:
        return value[:1].repeat(2, *[1] * (value.dim() - 1)) if isinstance(value, Tensor) and len(value) == n else value

    found: set[int] = set()

    def compare(layer: int, blocks: Blocks) -> None:
        for block in blocks if layer in merged else ():
            first, second = block.weights  # (heads, rows, columns) each, if sequences are first
            found.update(() if torch.equal(first, second) else (layer,))

    if isinstance(inputs, Mapping):
        doubled: Any = {name: twice(value) for name, value in inputs.items()}
    else:
        doubled = tuple(map(twice, inputs if isinstance(inputs, (tuple, list)) else (inputs,)))
    _run(model, doubled, compare, frozenset())
    return frozenset(found)


def each_attention(model: nn.Module, inputs: Any, take: Callable[[Tensor], None]) -> Any:
    """Pass the weights of every attention call of the model on `inputs` to `take`, in the form of `attention_maps`;
    only those of one layer are in memory at a time. Returns the model's output."""
    return each_layer(model, inputs, lambda layer, blocks: take(_joined(blocks)))


def _joined(blocks: Blocks) -> Tensor:
    parts = [block.weights for block in blocks]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def attention_maps(model: nn.Module, inputs: Any) -> list[Tensor]:
    """Attention weights of every attention call of the model on `inputs` (a tensor, a tuple of arguments or a mapping
    of them), in the order of the calls, (n, heads, rows, columns) each. Modes, random numbers and gradients stay as
    they are.

    Examples:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> [tuple(weights.shape) for weights in attention_maps(layer, torch.zeros(3, 5, 8))]
        [(3, 2, 5, 5)]
    """
    maps: dict[int, Tensor] = {}
    each_layer(model, inputs, lambda layer, blocks: maps.update({layer: _joined(blocks)}))
    return list(maps.values())
