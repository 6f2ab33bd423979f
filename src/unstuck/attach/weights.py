"""Attention weights computed again from the arguments of a fast kernel, some rows at a time.

A layer is an iterator of `Block`s. A context of 8,192 tokens has 67 million weights a head, so that only some rows are
in memory at once: `MOST` numbers, of which a measurement needs a few copies.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MOST = 8_000_000  # weights of a block, 32 MB: a measurement of 8,192 tokens stays below 500 MB; at twice that, 1 GB


@dataclass(frozen=True)
class Block:
    """Some rows of a layer's attention."""

    weights: Tensor  # (n, heads, rows of the block, columns)
    first: int  # the number of its first row
    rows: int  # of the layer
    before: int = 0  # columns before those of the tokens: memory keys, a sink
    after: int = 0  # columns behind them

    @property
    def of_tokens(self) -> Tensor:
        """The weights without columns that are not tokens."""
        return self.weights[..., self.before : self.weights.shape[-1] - self.after]

    @property
    def is_square(self) -> bool:
        """Do all tokens attend to each other?"""
        return self.of_tokens.shape[-1] == self.rows


Blocks = Iterable[Block]


def whole(weights: Tensor, before: int = 0, after: int = 0) -> list[Block]:
    """A layer in one block. (rows, columns) are one sequence and head, (n, rows, columns) one head."""
    weights = four_axes(weights)
    return [Block(weights, 0, weights.shape[-2], before, after)]


def four_axes(values: Tensor) -> Tensor:
    while values.dim() < 4:
        values = values[:, None] if values.dim() == 3 else values[None]
    return values.flatten(0, -4)


def full_precision(device: str) -> AbstractContextManager[Any]:
    """Also within autocast: some signals are small differences."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def of_scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Iterator[Block]:
    """What scaled_dot_product_attention multiplies the values by."""
    rows, columns = query.shape[-2], key.shape[-2]
    mask = None if attn_mask is None else _mask(attn_mask, query, rows, columns)

    def change(scores: Tensor, first: int) -> Tensor:
        if is_causal:
            scores = scores.masked_fill(_ahead(scores, first), -math.inf)
        if mask is None:
            return scores
        part = mask if mask.shape[-2] == 1 else mask[..., first : first + scores.shape[-2], :]
        return scores.masked_fill(~part, -math.inf) if part.dtype == torch.bool else scores + part

    return _blocks(query, key, scale, change)


def of_flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: Sequence[Any],
    scale: float,
    *rest: Any,
) -> Iterator[Block]:
    """What flex_attention multiplies the values by: its functions are called for every weight, as it does itself."""
    visible = block_mask[-1]
    n, heads = len(query), query.shape[1]

    def change(scores: Tensor, first: int) -> Tensor:
        at = [torch.arange(size, device=scores.device) for size in (n, heads, scores.shape[-2], scores.shape[-1])]
        at[2] = at[2] + first
        changed = _everywhere(score_mod, scores=True)(scores, *at)
        return changed.masked_fill(~_everywhere(visible, scores=False)(*at), -math.inf)

    return _blocks(query, key, scale, change)


def _everywhere(function: Callable[..., Tensor], *, scores: bool) -> Callable[..., Tensor]:
    """A function of one weight, its sequence, head, row and column, for all of them."""
    for axis in range(3, -1, -1):
        function = torch.vmap(
            function, in_dims=(*([0] if scores else []), *(0 if i == axis else None for i in range(4)))
        )
    return function


def _blocks(
    query: Tensor, key: Tensor, scale: float | None, change: Callable[[Tensor, int], Tensor]
) -> Iterator[Block]:
    """The softmax of scores of queries and keys, after `change`, which gets some rows and the number of the first."""
    query, key = four_axes(query), four_axes(key)
    before, after = _not_tokens(key, query.shape[-2])
    if key.shape[1] != query.shape[1]:  # several query heads share one key head
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    rows, columns = query.shape[-2], key.shape[-2]
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    many = max(1, MOST // max(1, len(query) * query.shape[1] * columns))
    for first in range(0, rows, many):
        with full_precision(query.device.type):
            scores = query[..., first : first + many, :].float() @ key.float().mT * factor
        scores = change(scores, first)
        hidden = (scores == -math.inf).all(-1, keepdim=True)  # a row that may attend to nothing has no weights
        weights = scores.softmax(-1).masked_fill(hidden, 0.0)
        del scores
        yield Block(weights, first, rows, before, after)


def _ahead(scores: Tensor, first: int) -> Tensor:
    """True at columns behind the row itself."""
    rows, columns = scores.shape[-2:]
    at = torch.arange(columns, device=scores.device)
    return at > torch.arange(first, first + rows, device=scores.device)[:, None]


def _mask(mask: Tensor, query: Tensor, rows: int, columns: int) -> Tensor:
    """A mask with the axes of the scores. PyTorch's CausalBias is a description without values; its module loads the
    compiler, so it is not imported here: it is there if such a mask was made."""
    bias = sys.modules.get("torch.nn.attention.bias")
    if bias is not None and isinstance(mask, bias.CausalBias):
        ends = mask.variant == bias.CausalVariant.LOWER_RIGHT  # there the last row sees all, else the first one column
        return torch.ones(rows, columns, dtype=torch.bool, device=mask.device).tril(columns - rows if ends else 0)
    if query.dim() == 3 and mask.dim() == 3:
        return mask[:, None]
    if query.dim() > 4:
        mask = mask.expand(*query.shape[:-2], *mask.shape[-2:]).flatten(0, -4)
    return mask


def _not_tokens(key: Tensor, rows: int) -> tuple[int, int]:
    """How many keys before and behind those of the tokens are none of theirs, such as memory keys: they are the same in
    all sequences. (0, 0) where that is not known."""
    extra = key.shape[-2] - rows
    if 0 < extra < rows and len(key) > 1:
        same = (key == key[:1]).all(-1).all(0).all(0).tolist()  # (columns,)
        before = same.index(False) if False in same else 0
        after = same[::-1].index(False) if False in same else 0
        if before + after == extra:
            return before, after
    return 0, 0


def not_tokens_of(weights: Tensor, scores: Tensor | None = None) -> tuple[int, int]:
    """The same from weights, (n, heads, rows, columns), and the scores before the softmax, if they are known.

    Causal rows show it: the first one attends to one token and to what is none. Otherwise a zero key has the score 0
    everywhere; else one column more is taken for a sink at the end.
    """
    rows, columns = weights.shape[-2:]
    extra = columns - rows
    if not 0 < extra < rows:  # more of them: attention to another sequence, or from its last rows alone
        return 0, 0
    attended = (weights > 0).flatten(0, 1).any(0)
    if not attended.triu(extra + 1).any():
        return extra, 0
    if not attended[:, :rows].triu(1).any() and attended[:, rows:].all():
        return 0, extra
    if scores is not None and scores.shape == weights.shape:
        flat = scores.flatten(0, 2)
        if bool((flat[:, :extra] == 0).all()):
            return extra, 0
        if bool((flat[:, -extra:] == 0).all()):
            return 0, extra
    return 0, (1 if extra == 1 else 0)


def of_multihead_attention(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Block]:
    """The weights of each head from multi_head_attention_forward, in full precision. What it adds to the keys is
    behind them."""

    def exact(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

    asked = {**kwargs, "need_weights": True, "average_attn_weights": False}
    with full_precision(args[0].device.type):
        weights = function(*map(exact, args), **{name: exact(value) for name, value in asked.items()})[1]
    hidden = weights.isnan().all(-1, keepdim=True)  # rows that may attend to nothing; if all are NaN, the model is
    weights = weights if hidden.all() else weights.masked_fill(hidden, 0.0)
    weights = weights if weights.dim() == 4 else weights[None]
    keys = args[1].shape[0]  # (columns, n, width), or (columns, width)
    return whole(weights, 0, max(0, weights.shape[-1] - keys))
