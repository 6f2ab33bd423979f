"""Competition and cooperation of heads: attention to each group, specialisation, alignment of values.

Specialisation: P[k, g] is head k's attention on group g, normalised over groups; S = (max over assignments of one head
a group of mean P[k, g] - 1/h) / (1 - 1/h): 0 for identical heads, 1 for one group each. With fewer heads than groups
the index is undefined: the value for identical heads would depend on where they attend.
"""

import math

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unstuck.curve import Curve


def specialisation(mass: ArrayLike) -> float:
    """The index from each head's attention mass on each group, (heads, groups); NaN with fewer heads than groups.

    Examples:
        >>> round(specialisation([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), 6), round(specialisation([[5, 1, 1]] * 3), 6)
        (1.0, 0.0)
    """
    from scipy.optimize import linear_sum_assignment  # half a second that most runs save

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


def alignment(values: Tensor, features: Tensor) -> Tensor:
    """Alignment of the values of each head with each group: <V_head, A_k> / |A_k|², (heads, groups)."""
    size = features.square().sum((1, 2))
    return torch.einsum("hij,kij->hk", values.detach().cpu(), features.cpu()) / size.cpu()


def by_layer(curve: Curve | pd.DataFrame) -> dict[int, NDArray[np.float64]]:
    """The specialisation index of each layer over a run; of layers that have one in every row."""
    mass = Curve.of(curve).groups()  # (rows, layers, heads, groups)
    layers = [layer for layer in range(mass.shape[1]) if np.isfinite(mass[:, layer, 0, 0]).all()]
    return {layer: np.array([specialisation(_known(row)) for row in mass[:, layer]]) for layer in layers}


def _known(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """The heads and groups that there are, (heads, groups), with 0 where one alone is missing."""
    there = np.isfinite(mass)
    return np.nan_to_num(mass[there.any(1)][:, there.any(0)])
