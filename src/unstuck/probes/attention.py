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
    starts = targets.any(-1)[targets.flatten(1).any(-1)]  # the rows of sequences that have a target
    if targets.dim() == 3 and (starts != starts[:1]).any():
        return torch.full_like(weights[0, :, 0, 0], math.nan)
    given = weights.float().transpose(0, 1).flatten(2) @ targets.flatten(1).float().T  # (heads, n, whose targets)
    beyond = given - given.mean(1, keepdim=True)
    beyond = beyond - beyond.mean(2, keepdim=True)
    found = beyond.diagonal(dim1=1, dim2=2).sum(-1) / (beyond.square().sum((1, 2)) / (len(targets) - 1)).sqrt()
    equal = beyond.square().mean((1, 2)).sqrt() <= ROUNDING * given.mean((1, 2))
    return found.masked_fill(equal, math.nan)


def readout_entropy(readout: Tensor) -> Tensor:
    """Entropy of attention from the read-out position, (n, heads, columns), in units of log columns: 1 where uniform, 0
    on one token."""
    return torch.special.entr(readout).sum(-1).mean(0) / math.log(readout.shape[-1])


def row_entropy(weights: Tensor) -> Tensor:
    """Entropy of all rows, divided by that of uniform attention to the visible columns: 1 where all are uniform.

    A column is visible to a row if the same row attends to it in any sequence or head, and any row of its own sequence
    does: half precision rounds small weights to 0, and no row attends to padding. A row without weights does not count.
    """
    attended = weights > 0
    visible = (attended.flatten(0, 1).any(0) & attended.any(1).any(1)[:, None]).sum(-1).clamp_min(1)  # (n, rows)
    return torch.special.entr(weights).sum((-1, -2)).sum(0) / visible.float().log().sum().clamp_min(1e-9)


def distance(weights: Tensor) -> Tensor:
    """How many tokens away a head attends, mean over all rows; the last row is at the last column."""
    rows, columns = weights.shape[-2:]
    at = torch.arange(columns, device=weights.device)
    return (weights * (at[columns - rows :, None] - at).abs()).sum(-1).mean((0, 2))


def induction_score(weights: Tensor, half: int | None = None) -> Tensor:
    """On a sequence that ends in the same `half` tokens twice (by default half of it): the attention from each token of
    the second copy to the token that followed it in the first copy.

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


def without_sink(weights: Tensor) -> Tensor:
    """Without the column of an attention sink, which is the last one and has no position."""
    rows, columns = weights.shape[-2:]
    return weights[..., :-1] if columns == rows + 1 else weights
