"""How much attention goes from the read-out position to the relevant tokens, how spread out it is, and what goes
along the task's other links."""

import math

import torch
from torch import Tensor

from unstuck.tasks.task import Batch


def attention_columns(maps: list[Tensor], batch: Batch) -> dict[str, float]:
    """Means over a batch of each head's attention from the last position, as columns of a curve.

    `attn_0_2` is layer 0, head 2: its attention on all relevant tokens together. `entropy_0_2` is its entropy,
    in units of log T: 1 when uniform, 0 on one token.
    """
    columns = {}
    relevant = batch.relevant[:, None].to(maps[0].dtype)  # (n, 1, T)
    for layer, weights in enumerate(maps):  # (n, heads, T)
        on_relevant = (weights * relevant).sum(-1).mean(0)
        entropy = torch.special.entr(weights).sum(-1).mean(0) / math.log(weights.shape[-1])
        for head, (a, e) in enumerate(zip(on_relevant.tolist(), entropy.tolist(), strict=True)):
            columns[f"attn_{layer}_{head}"] = a
            columns[f"entropy_{layer}_{head}"] = e
    return columns


def link_columns(maps: list[Tensor], links: dict[str, Tensor], *, last: bool = False) -> dict[str, float]:
    """Means of each head's attention along links between positions: for each name, `copy_0_2` and so on.

    `maps` are (n, heads, T, T); a link is (n, T, T), True from a position to those it should look at. The mean is over
    the positions of the batch from which a link starts, or, with `last`, over its last positions alone.
    """
    columns: dict[str, float] = {}
    maps = [weights[:, :, -1:] for weights in maps] if last else maps
    for name, link in links.items():
        link = link[:, -1:] if last else link
        starts = link.any(-1).sum()
        for layer, weights in enumerate(maps):
            along = (weights * link[:, None]).sum((0, 2, 3)) / starts
            columns |= {f"{name}_{layer}_{head}": a for head, a in enumerate(along.tolist())}
    return columns
