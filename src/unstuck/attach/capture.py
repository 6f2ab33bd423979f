"""The attention weights of any model, for one batch, without changing the model.

Fast kernels return no weights. While the model runs on the batch, every call of `scaled_dot_product_attention` is
intercepted, and its weights are computed again from its queries and keys; so is `torch.nn.MultiheadAttention`. The
result of a softmax over (n, heads, rows, columns) is taken as weights if there are no more rows than columns, since
other tensors have four axes too. The model itself runs unchanged: same implementation, same numbers. Weights without a
batch or heads get an axis of length 1 for them.
"""

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

SOFTMAX: tuple[Callable[..., Any], ...] = (F.softmax, torch.softmax, Tensor.softmax)


class _Recorder(TorchFunctionMode):
    """Passes the weights of every attention call to `take` and keeps none: those of a large model need much memory."""

    def __init__(self, take: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.take = take

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self._take(_weights(*args, **kwargs))
        elif func is F.multi_head_attention_forward:
            weights = _weights_of_module(func, args, kwargs)
            self._take(weights if weights.dim() == 4 else weights[None])
        out = func(*args, **kwargs)
        if func in SOFTMAX and out.dim() == 4 and out.shape[-2] <= out.shape[-1] and _over_columns(args, kwargs):
            self._take(out)
        return out

    def _take(self, weights: Tensor) -> None:
        """As (n, heads, rows, columns): (rows, columns) are one sequence and head, (n, rows, columns) one head."""
        while weights.dim() < 4:
            weights = weights[:, None] if weights.dim() == 3 else weights[None]
        self.take(weights.flatten(0, -4))


def _over_columns(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is it a softmax over the last axis of four?"""
    given = args[1] if len(args) > 1 else None
    return kwargs.get("dim", kwargs.get("axis", given)) in (-1, 3)


def _weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What scaled_dot_product_attention multiplies the values by, (n, heads, rows, columns)."""
    if query.dim() > 2 and key.shape[-3] != query.shape[-3]:  # several query heads share one key head
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    with _full_precision(query.device.type):
        scores = query.float() @ key.float().mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    rows, columns = scores.shape[-2:]
    if is_causal:
        ahead = torch.ones(rows, columns, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    if attn_mask is not None:
        attn_mask = _plain(attn_mask, rows, columns)
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    hidden = (scores == -math.inf).all(-1, keepdim=True)  # a row that may attend to nothing has no weights
    return scores.softmax(-1).masked_fill(hidden, 0.0)


def _plain(mask: Tensor, rows: int, columns: int) -> Tensor:
    """A mask as a plain tensor: PyTorch's CausalBias is a description without values. Its module loads the compiler, so
    it is not imported here: it is there if such a mask was made."""
    bias = sys.modules.get("torch.nn.attention.bias")
    if bias is None or not isinstance(mask, bias.CausalBias):
        return mask
    ends = mask.variant == bias.CausalVariant.LOWER_RIGHT  # there the last row sees all, else the first row one column
    return torch.ones(rows, columns, dtype=torch.bool, device=mask.device).tril(columns - rows if ends else 0)


def _weights_of_module(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """The weights of each head from multi_head_attention_forward, in full precision."""

    def exact(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

    asked = {**kwargs, "need_weights": True, "average_attn_weights": False}
    with _full_precision(args[0].device.type):
        weights = func(*map(exact, args), **{name: exact(value) for name, value in asked.items()})[1]
    hidden = weights.isnan().all(-1, keepdim=True)  # rows that may attend to nothing; if all are NaN, the model is
    return weights if hidden.all() else weights.masked_fill(hidden, 0.0)


def _full_precision(device: str) -> AbstractContextManager[Any]:
    """Also within autocast: some signals are small differences."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


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


def each_attention(model: nn.Module, inputs: Any, take: Callable[[Tensor], None]) -> Any:
    """Pass the weights of every attention call of the model on `inputs` to `take`, in the form of `attention_maps`;
    only those of one layer are in memory at a time. Returns the model's output."""
    model = unwrapped(model)
    inputs = beside(model, inputs)
    with undisturbed(model), _Recorder(take):
        if isinstance(inputs, Mapping):
            return model(**inputs)
        return model(*(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))


def attention_maps(model: nn.Module, inputs: Any) -> list[Tensor]:
    """Attention weights of every attention call of the model on `inputs` (a tensor, a tuple of arguments or a mapping
    of them), in the order of the calls, (n, heads, rows, columns) each. Modes, random numbers and gradients stay as
    they are.

    Examples:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> [tuple(weights.shape) for weights in attention_maps(layer, torch.zeros(3, 5, 8))]
        [(3, 2, 5, 5)]
    """
    maps: list[Tensor] = []
    each_attention(model, inputs, maps.append)
    return maps
