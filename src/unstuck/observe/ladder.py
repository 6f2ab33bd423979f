"""Do heads compete or cooperate? How much each attends to each group, how specialised they are, and what they say.

Specialisation: P[k, g] is head k's attention on group g, normalised over groups; S = (max over assignments of one head
a group of mean P[k, g] - 1/h) / (1 - 1/h): 0 for identical heads, 1 for one group each.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def specialisation(mass: ArrayLike) -> float:
    """The index from each head's attention mass on each group, (heads, groups).

    Examples:
        >>> round(specialisation([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), 6), round(specialisation([[5, 1, 1]] * 3), 6)
        (1.0, 0.0)
    """
    P = np.asarray(mass, dtype=float)
    P = P / P.sum(1, keepdims=True)
    heads, groups = linear_sum_assignment(-P)
    h = P.shape[1]
    if h == 1:
        return 1.0
    # With identical heads the best assignment has mean 1/h, whatever they attend to.
    return float((P[heads, groups].mean() - 1 / h) / (1 - 1 / h))


def ladder_columns(columns: dict[str, float], values: Tensor | None, features: Tensor) -> dict[str, float]:
    """Specialisation of the last layer's heads from the columns `group1_L_H` ..., and, for a model that shows its value
    matrices, <V_head, A_k> / |A_k|² as `align_H_K`; heads count from 0, groups from 1."""
    places = sorted({tuple(map(int, c.split("_")[1:])) for c in columns if c.startswith("group1_")})
    layer = max(place[0] for place in places)
    heads = [head for at, head in places if at == layer]
    groups = range(1, len(features) + 1)
    mass = [[columns[f"group{g}_{layer}_{head}"] for g in groups] for head in heads]
    out = {"specialisation": specialisation(mass)}
    if values is not None:
        size = features.square().sum((1, 2))
        align = torch.einsum("hij,kij->hk", values.detach().cpu(), features.cpu()) / size.cpu()
        out |= {f"align_{h}_{k + 1}": a for h, row in enumerate(align.tolist()) for k, a in enumerate(row)}
    return out
