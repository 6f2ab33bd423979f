"""What a `Watch` measures of a layer: entropy and distance of its heads, attention to targets, scores of induction.

The definitions are those of `probes`; here they are put together from a layer's rows, which come in blocks.
"""

import sys
from collections.abc import Mapping

import torch
from torch import Tensor

from unstuck.attach.weights import Block, Blocks
from unstuck.columns import MEASURES, Row, head_columns, selectivity_columns
from unstuck.probes.attention import (
    RowEntropy,
    attention_along,
    attention_back,
    attention_to,
    attention_to_targets_of,
    distance,
    from_the_same_rows,
    selectivity_among,
)


def named(measure: str, layer: int, values: Tensor) -> Row:
    """A number for each head, by the name of its column; the names are interned, since every row repeats them."""
    return {sys.intern(name): value for name, value in head_columns(measure, layer, values.tolist()).items()}


class LayerMeasures:
    """The measures of one layer, from the blocks of its rows.

    `targets` are masks by the prefix of their columns; those of another shape than the layer are skipped. `half` is the
    length of the two passes with which the sequences end, for scores of induction, and `previous` asks for that of the
    previous token; both need tokens that attend to each other, `least` of them or more.
    """

    def __init__(
        self, targets: Mapping[str, Tensor], *, half: int | None = None, previous: bool = False, least: int = 0
    ) -> None:
        self.targets, self.half, self.previous, self.least = targets, half, previous, least
        self.shape: tuple[int, ...] = ()
        self._entropy = RowEntropy()
        self._means: dict[str, _Mean] = {}
        self._given: Tensor | float = 0.0  # attention of each sequence to the targets of each, (heads, n, n)

    def add(self, blocks: Blocks) -> "LayerMeasures":
        for block in blocks:
            self._add(block)
        return self

    def row(self, layer: int, *, general: bool = True) -> Row:
        """The columns of the layer; without `general`, those of targets and scores alone."""
        out = named("row_entropy", layer, self._entropy.value) if general else {}
        for name, mean in self._means.items():
            if general or name != "distance":
                out |= named(name, layer, mean.value)
        if isinstance(self._given, Tensor):
            out |= selectivity_columns(layer, selectivity_among(self._given).tolist())
        return out

    def _add(self, block: Block) -> None:
        weights, own = block.weights.float(), block.of_tokens.float()
        n, heads, rows, _ = weights.shape
        self.shape = (n, heads, block.rows, own.shape[-1])
        first = block.first + own.shape[-1] - block.rows  # the last row is at the last token
        self._entropy.add(weights)
        self._mean("distance", distance(own, first) * rows, rows)
        for name, target in self.targets.items():
            self._add_target(name, target, block, own if target.shape[-1] == own.shape[-1] else weights)
        if block.is_square and block.rows >= self.least:
            self._add_scores(own, first)

    def _add_target(self, name: str, target: Tensor, block: Block, weights: Tensor) -> None:
        n, _, rows, columns = weights.shape
        if len(target) not in (1, n) or target.shape[1:] not in ((columns,), (block.rows, columns)):
            return
        end = block.first + rows
        mask = target if target.dim() == 2 else target[:, block.first : end]
        mask = mask.to(weights.device).expand(n, *mask.shape[1:])
        if target.dim() == 2:
            if end == block.rows:
                self._mean(name, attention_to(weights[:, :, -1], mask), 1)
                self._compare(name, target, weights[:, :, -1], mask)
        elif count := int(mask.any(-1).sum()):
            self._mean(name, attention_along(weights, mask) * count, count)
            self._compare(name, target, weights, mask)

    def _compare(self, name: str, target: Tensor, weights: Tensor, mask: Tensor) -> None:
        """Attention to the targets of other sequences, against which that to the own ones is tested."""
        if name == MEASURES["attention"] and from_the_same_rows(target):
            self._given = self._given + attention_to_targets_of(weights, mask)

    def _add_scores(self, weights: Tensor, first: int) -> None:
        """Attention to the previous token, to the same token in the first pass, and to the one after that."""
        columns = weights.shape[-1]
        if self.half is not None:
            second = columns - self.half
            self._mean("duplicate_token", *attention_back(weights, self.half, first, second))
            self._mean("induction", *attention_back(weights, self.half - 1, first, second))
        if self.previous:
            self._mean("previous_token", *attention_back(weights, 1, first))

    def _mean(self, name: str, total: Tensor, count: int) -> None:
        self._means.setdefault(name, _Mean()).add(total, count)


class _Mean:
    """A mean over parts."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.count = 0

    def add(self, total: Tensor, count: int) -> None:
        self.total, self.count = self.total + total, self.count + count

    @property
    def value(self) -> Tensor:
        return torch.as_tensor(self.total) / max(1, self.count)
