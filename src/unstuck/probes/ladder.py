"""Do heads compete or cooperate? How much each attends to each group, how specialised they are, and what they say.

Specialisation: P[k, g] is head k's attention on group g, normalised over groups; S = (max over assignments of one head
a group of mean P[k, g] - 1/h) / (1 - 1/h): 0 for identical heads, 1 for one group each. With fewer heads than groups
there is no such index: what identical heads score would depend on where they look.
"""

import math
import re

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


def specialisation(mass: ArrayLike) -> float:
    """The index from each head's attention mass on each group, (heads, groups); NaN with fewer heads than groups.

    Examples:
        >>> round(specialisation([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), 6), round(specialisation([[5, 1, 1]] * 3), 6)
        (1.0, 0.0)
    """
    from scipy.optimize import linear_sum_assignment  # half a second that most runs need not wait

    P = np.asarray(mass, dtype=float)
    h = P.shape[1]
    if len(P) < h:
        return math.nan
    if h == 1:
        return 1.0
    P = P / P.sum(1, keepdims=True)
    heads, groups = linear_sum_assignment(-P)
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


def head_mass(row: pd.Series, layer: int) -> NDArray[np.float64]:
    """Attention of a layer's heads on the groups, (heads, groups), of a row of a curve."""
    places = [re.fullmatch(rf"group(\d+)_{layer}_(\d+)", str(c)) for c in row.index if pd.notna(row[c])]
    mine = {(int(p[2]), int(p[1]) - 1): float(row[p[0]]) for p in places if p}
    out = np.zeros((1 + max(h for h, _ in mine), 1 + max(g for _, g in mine)))
    for at, value in mine.items():
        out[at] = value
    return out


def by_layer(curve: pd.DataFrame) -> dict[int, NDArray[np.float64]]:
    """The specialisation index of each layer over a run."""
    names = [re.fullmatch(r"group1_(\d+)_0", str(c)) for c in curve if curve[c].notna().all()]
    layers = sorted(int(found[1]) for found in names if found)
    return {at: np.array([specialisation(head_mass(row, at)) for _, row in curve.iterrows()]) for at in layers}
