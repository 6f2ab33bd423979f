"""What is kept of attention weights: how spread they are, how far they reach, how much of them lies where the user
said, and whether heads copy what followed the last time."""

import math
import sys
from collections.abc import Mapping

import torch
from torch import Tensor


def named(name: str, layer: int, values: Tensor) -> dict[str, float]:
    """A number of each head, by the name of its column."""
    return {sys.intern(f"{name}_{layer}_{head}"): value for head, value in enumerate(values.tolist())}


def statistics(layer: int, weights: Tensor, targets: Mapping[str, Tensor]) -> dict[str, float]:
    """Entropy and distance of each head, and its attention to the targets that have the layer's shape."""
    w = weights.float()
    columns = w.shape[-1]
    # Over that of uniform attention on what each row may look at: as in our own runs, 1 when uniform.
    # A row may look at what some row like it looks at, in any sequence or head, and somebody in its own sequence: half
    # precision rounds small weights to 0, and padding is nowhere looked at. Where it is nothing, nothing is spread.
    looked = w > 0
    visible = (looked.flatten(0, 1).any(0) & looked.any(1).any(1)[:, None]).sum(-1).clamp_min(1)  # (n, rows)
    entropy = torch.special.entr(w).sum((-1, -2)).sum(0) / visible.float().log().sum().clamp_min(1e-9)
    if columns == w.shape[-2] + 1:  # a sink, at the end: it is nowhere
        w, columns = w[..., :-1], columns - 1
    rows = torch.arange(columns - w.shape[-2], columns, device=w.device)
    distance = (w * (rows[:, None] - torch.arange(columns, device=w.device)).abs()).sum(-1).mean((0, 2))
    out = named("entropy", layer, entropy) | named("distance", layer, distance)
    for name, target in targets.items():
        if len(target) not in (1, len(w)) or target.shape[1:] not in (w.shape[-1:], w.shape[-2:]):
            continue
        mask, seen_from = target.to(w.device), w
        if mask.dim() == 2:  # from the last position
            mask, seen_from = mask[:, None], w[:, :, -1:]
        mask = mask.expand(len(w), -1, -1)
        asked = mask.any(-1)[:, None].float()  # rows that have a target
        out |= named(name, layer, ((seen_from * mask[:, None]).sum(-1) * asked).sum((0, 2)) / asked.sum((0, 2)))
    return out


def induction_score(weights: Tensor, half: int | None = None) -> Tensor:
    """Of each head, (heads,): on a sequence that ends in twice the same `half` tokens (half of it, if not given), the
    attention of the second time to the token that came after the same token the first time.

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
