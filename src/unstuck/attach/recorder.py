"""See the attention calls of a model while it runs: a function mode that passes each layer's weights on.

Three kinds of calls are seen: kernels of PyTorch (`scaled_dot_product_attention`, `flex_attention`), whose weights are
computed again from queries and keys; `torch.nn.MultiheadAttention`; and a softmax over the last axis of (n, heads,
rows, columns) or (n * heads, rows, columns). A softmax counts as attention only if its result is multiplied, as a
matrix, by values that differ between sequences: the softmax of a gate is not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from unstuck.attach.weights import (
    Block,
    Blocks,
    not_tokens_of,
    of_flex_attention,
    of_multihead_attention,
    of_scaled_dot_product,
    whole,
)

SOFTMAX: tuple[Callable[..., Any], ...] = (F.softmax, torch.softmax, Tensor.softmax)
PRODUCTS: tuple[Callable[..., Any], ...] = (
    torch.matmul,
    Tensor.matmul,
    Tensor.__matmul__,
    Tensor.__rmatmul__,
    torch.bmm,
    Tensor.bmm,
    torch.einsum,
)
MOST_PENDING = 4  # softmaxes whose use is waited for: two in differential attention, and a gate or two between

Take = Callable[[int, Blocks], None]  # gets the number of a layer and its weights


class Recorder(TorchFunctionMode):
    """Passes the weights of every attention call to `take` and keeps none: those of a large model need much memory.

    `sequences` is the number of sequences, which shows the heads of (n * heads, rows, columns); where that is no
    multiple of it, `heads` does, their number by the model's configuration. Layers in `heads_first` have (heads * n,
    rows, columns) instead; `merged` collects the layers that have either, and `unsplit` the lengths of the first axis
    of which neither number is a part, so that a layer is read as one head.
    """

    def __init__(
        self,
        take: Take,
        sequences: int | None = None,
        heads_first: frozenset[int] = frozenset(),
        heads: int | None = None,
    ) -> None:
        super().__init__()
        self.take, self.sequences, self.heads_first, self.heads = take, sequences, heads_first, heads
        self.unsplit: set[int] = set()
        self.layer = 0
        self.merged: set[int] = set()
        self._pending: list[_Softmax] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            blocks = of_scaled_dot_product(*args, **kwargs)
            query = args[0] if args else kwargs["query"]
            self._pass(map(partial(_with_heads, self._split(len(query))), blocks) if query.dim() == 3 else blocks)
        elif func is F.multi_head_attention_forward:
            self._pass(of_multihead_attention(func, args, kwargs))
        elif getattr(func, "_name", None) == "flex_attention":
            self._pass(of_flex_attention(*args, **kwargs))
        out = func(*args, **kwargs)
        if func in SOFTMAX:
            if _is_candidate(out, args, kwargs):
                self._pending = [*self._pending[1 - MOST_PENDING :], _Softmax(out, args[0])]
        elif self._pending:
            self._follow(func, args, out)
        return out

    def _pass(self, blocks: Blocks) -> None:
        self.take(self.layer, blocks)
        self.layer += 1

    def _follow(self, func: Any, args: Sequence[Any], out: Any) -> None:
        """What becomes of a softmax: multiplied by values it is attention; changed without a change of size, it is
        still the same one."""
        operands = [x for arg in args for x in (arg if isinstance(arg, (tuple, list)) else (arg,))]
        tensors = [x for x in operands if isinstance(x, Tensor)]
        for softmax in [s for s in self._pending if any(s.is_same(x) for x in tensors)]:
            if func in PRODUCTS:
                others = [x for x in tensors if not softmax.is_same(x)]
                if any(x.dim() >= 3 for x in others):  # a matrix of parameters has two axes
                    self._pending.remove(softmax)
                    self._pass(self._blocks(softmax))
            elif isinstance(out, Tensor) and out.numel() == softmax.weights.numel():
                softmax.forms.append(out)

    def _blocks(self, softmax: "_Softmax") -> list[Block]:
        weights, scores = softmax.weights, softmax.scores
        if weights.dim() == 3:
            split = self._split(len(weights))
            weights, scores = split(weights), split(scores)
        return whole(weights, *not_tokens_of(weights, scores))

    def _split(self, length: int) -> Callable[[Tensor], Tensor]:
        """How the first axis of (n * heads, rows, columns), of this length, becomes two."""
        n = self.sequences
        if n and length > n and length % n == 0:
            self.merged.add(self.layer)
            if self.layer in self.heads_first:
                return lambda x: x.unflatten(0, (-1, n)).transpose(0, 1)
            return lambda x: x.unflatten(0, (n, -1))
        if n != length and self.heads and length % self.heads == 0:
            heads = self.heads
            return lambda x: x.unflatten(0, (-1, heads))
        if n != length:
            self.unsplit.add(length)
        return lambda x: x[:, None]


def _with_heads(split: Callable[[Tensor], Tensor], block: Block) -> Block:
    """A block of one head, whose first axis is that of sequences and heads, with an axis for each."""
    return replace(block, weights=split(block.weights[:, 0]))


class _Softmax:
    """A softmax that may be attention, and the tensors that it has become since."""

    def __init__(self, weights: Tensor, scores: Tensor) -> None:
        self.weights, self.scores, self.forms = weights, scores, [weights]

    def is_same(self, tensor: Tensor) -> bool:
        return any(tensor is form for form in self.forms)


def _is_candidate(out: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is it a softmax over the last of three or four axes, with no more rows than columns?"""
    if not isinstance(out, Tensor) or out.dim() not in (3, 4) or out.shape[-2] > out.shape[-1] or not args:
        return False
    given = args[1] if len(args) > 1 else None
    return kwargs.get("dim", kwargs.get("axis", given)) in (-1, out.dim() - 1)
