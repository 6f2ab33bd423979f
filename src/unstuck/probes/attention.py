"""What is measured of attention weights: one definition of each measure, for our own loop and for `Watch`.

Weights are (n, heads, rows, columns), a row a position that attends, or (n, heads, columns) from the read-out position
alone. A measure is a number of each head, (heads,), a mean over a batch. A mask is True at what should be attended to.
"""

import math

import torch
from torch import Tensor

ROUNDING = 1e-6  # relative, of sums in single precision: what differs by less is equal


def attention_to(readout: Tensor, targets: Tensor) -> Tensor:
    """Attention from the read-out position, (n, heads, columns), to all targets of a sequence together, (n, columns);
    sequences without a target do not count."""
    together = (readout * targets[:, None].to(readout.dtype)).sum(-1)
    return together.sum(0) / targets.any(-1).sum().clamp_min(1)


def attention_along(weights: Tensor, link: Tensor) -> Tensor:
    """Attention along links between positions, (n, rows, columns), over the rows from which a link starts: copying,
    from a value to its key; attention to a group of positions."""
    return (weights * link[:, None]).sum((0, 2, 3)) / link.any(-1).sum()


def selectivity(weights: Tensor, targets: Tensor) -> Tensor:
    """How many standard deviations the attention to the targets lies above what chance gives: the z of a permutation
    test in which every sequence gets the targets of another one.

    Weights are (n, heads, columns) with targets (n, columns), or (n, heads, rows, columns) with targets (n, rows,
    columns). If heads know nothing of the targets, all assignments of targets to sequences are alike. Mean and variance
    over all of them have a closed form (Hoeffding 1951); a preference for positions or for sequences cancels. NaN where
    there is no other assignment to compare with: where all sequences have the same targets, or attend to them from
    different rows, and in a single sequence.

    Examples:
        >>> targets = torch.eye(5, dtype=torch.bool)  # a position of its own in each of five sequences
        >>> selectivity(targets.float()[:, None], targets).tolist()  # a head that attends to nothing else
        [4.0]
    """
    z = selectivity_among(attention_to_targets_of(weights, targets))
    return z.masked_fill(~from_the_same_rows(targets), math.nan)


def from_the_same_rows(targets: Tensor) -> Tensor:
    """Do all sequences that have targets, (n, columns) or (n, rows, columns), attend to them from the same rows? True
    or False, on the device of the targets."""
    starts = targets.any(-1).reshape(len(targets), -1)  # (n, rows)
    return ((starts == starts.any(0)) | ~starts.any(-1, keepdim=True)).all()


def attention_to_targets_of(weights: Tensor, targets: Tensor) -> Tensor:
    """The attention that each sequence gives to the targets of each, (heads, n, whose targets); a sum over rows."""
    return weights.float().transpose(0, 1).flatten(2) @ targets.flatten(1).float().T


def selectivity_among(given: Tensor) -> Tensor:
    """`selectivity` from what `attention_to_targets_of` gives."""
    beyond = given - given.mean(1, keepdim=True)
    beyond = beyond - beyond.mean(2, keepdim=True)
    z = beyond.diagonal(dim1=1, dim2=2).sum(-1) / (beyond.square().sum((1, 2)) / (given.shape[1] - 1)).sqrt()
    equal = beyond.square().mean((1, 2)).sqrt() <= ROUNDING * given.mean((1, 2))
    return z.masked_fill(equal, math.nan)


def readout_entropy(readout: Tensor) -> Tensor:
    """Entropy of attention from the read-out position, (n, heads, columns), in units of log columns: 1 where uniform, 0
    on one token."""
    return torch.special.entr(readout).sum(-1).mean(0) / math.log(readout.shape[-1])


def row_entropy(weights: Tensor) -> Tensor:
    """Entropy of all rows, divided by that of uniform attention to the visible columns: 1 where all are uniform.

    A column is visible to a row if the same row attends to it in any sequence or head, and any row of its own sequence
    does: half precision rounds small weights to 0, and no row attends to padding. A row without weights does not count.
    """
    return RowEntropy().add(weights).value


class RowEntropy:
    """The same from rows that come in parts, such as those of a long context."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0  # (heads,)
        self.rows: list[Tensor] = []  # which columns each row attends to, in any sequence or head: (rows, columns)
        self.sequences: Tensor | None = None  # which columns any row of a sequence attends to: (n, columns)

    def add(self, weights: Tensor) -> "RowEntropy":
        attended = weights > 0
        seen = attended.any(1).any(1)
        self.rows.append(attended.flatten(0, 1).any(0))
        self.sequences = seen if self.sequences is None else self.sequences | seen
        self.total = self.total + torch.special.entr(weights).sum((-1, -2)).sum(0)
        return self

    @property
    def value(self) -> Tensor:
        assert self.sequences is not None
        assert isinstance(self.total, Tensor)
        each = self.sequences.float()  # counts of columns are whole numbers, which float32 holds
        visible = [(each @ part.float().mT).clamp_min(1).log().sum() for part in self.rows]
        return self.total / torch.stack(visible).sum().clamp_min(1e-9)


def distance(weights: Tensor, first: int | None = None) -> Tensor:
    """How many tokens away a head attends, mean over all rows. `first` is the position of the first row; by default the
    last row is at the last column."""
    rows, columns = weights.shape[-2:]
    at = torch.arange(columns, device=weights.device)
    first = columns - rows if first is None else first
    return (weights * (at[first : first + rows, None] - at).abs()).sum(-1).mean((0, 2))


def induction_score(weights: Tensor, half: int | None = None) -> Tensor:
    """On a sequence that ends in the same `half` tokens twice (by default half of it): the attention from each token of
    the second copy to the token that followed it in the first copy. The last row is at the last column.

    Examples:
        >>> perfect = torch.zeros(1, 1, 6, 6)
        >>> perfect[0, 0, [3, 4, 5], [1, 2, 3]] = 1.0
        >>> induction_score(perfect).tolist()
        [1.0]
    """
    columns = weights.shape[-1]
    half = math.ceil(columns / 2) if half is None else half
    rows = torch.arange(columns - half, columns, device=weights.device)
    return weights[:, :, rows, rows - half + 1].float().mean((0, 2))


def attention_back(weights: Tensor, lag: int, first: int, since: int = 0) -> tuple[Tensor, int]:
    """Attention of rows to the token `lag` places before, from rows that come in parts: its sum over sequences and the
    rows from position `since` on, (heads,), and the number of summands. `first` is the position of the first row.
    `induction_score`, `previous_token` and `duplicate_token` are such means over all rows."""
    skipped = max(since, lag) - first
    kept = weights[:, :, max(0, skipped) :]
    if not kept.shape[2]:
        return weights.new_zeros(weights.shape[1]), 0
    values = kept.diagonal(first + max(0, skipped) - lag, -2, -1).float()
    return values.sum((0, 2)), len(weights) * values.shape[-1]


def without_sink(weights: Tensor) -> Tensor:
    """Without the column of an attention sink, which is the last one and has no position."""
    rows, columns = weights.shape[-2:]
    return weights[..., :-1] if columns == rows + 1 else weights
