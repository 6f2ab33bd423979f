"""The toy model of Eq. 2: one attention layer whose scores are parameters."""

import torch
from torch import Tensor, nn


class ToyAttention(nn.Module):
    """y = W sum_t softmax(a)_t x_t, with a in R^T and W in R^{d x d}; both start at zero."""

    def __init__(self, T: int, d: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(T))
        self.W = nn.Parameter(torch.zeros(d, d))

    def forward(self, tokens: Tensor) -> Tensor:  # (n, T, d) -> (n, d)
        return torch.einsum("t,ntd->nd", self.a.softmax(0), tokens) @ self.W.T


def population_loss(a: Tensor, W: Tensor, target: Tensor, B: int = 1) -> Tensor:
    """The expected loss without cross-sample repetition, over all sequences (A.2); leading dimensions are a batch."""
    s = a.softmax(-1)
    T, d = s.shape[-1], W.shape[-1]
    relevant = s[..., T - B :].sum(-1)[..., None, None]
    noise = s[..., : T - B].square().sum(-1) * W.square().sum((-2, -1))
    return 0.5 * (noise + (relevant * W - target).square().sum((-2, -1))) / d
