"""Stochastic gradient descent on the toy model with its data summed out exactly (A.3.4, Figure 9).

A step on a batch of n sequences needs, of all their n T d numbers, only three things:

- the relevant tokens x, n vectors;
- the attention-weighted noise u = sum_t s_t x_t over the other tokens, n vectors, which is N(0, |s|² I/d);
- for the scores, the projections v·x_t of the other tokens on v = W^T (y - y*), averaged over the batch. Given x
  and u they are Gaussian with mean s_t (v·u)/|s|², and what is left of each token once s has been projected out of
  it: covariance (|v|²/d)(I - s s^T/|s|²). Averaging over the batch adds the variances, so one vector of T - B
  normals does.

So the gradients have the distribution of the plain sampler's, step by step, at a fraction of the cost
(tests/test_toy_sgd.py, `benchmarks/toy_sgd.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from unstuck.models.toy import population_loss
from unstuck.tasks.single_location import SingleLocation

from .seeds import stream


@dataclass
class Ensemble:
    """One toy model a seed, trained side by side: scores (S, T), weights and targets (S, d, d)."""

    a: Tensor
    W: Tensor
    target: Tensor

    @classmethod
    def start(cls, task: SingleLocation, seeds: Sequence[int], *, zero: bool = False) -> "Ensemble":
        """Uniform attention and W ~ N(0, 1/d) as in A.3.4, or W = 0 as the theory assumes."""
        target = torch.stack([task.world(stream(seed, "target"))["target"] for seed in seeds])
        init = (
            torch.stack([torch.randn(task.d, task.d, generator=stream(seed, "init")) for seed in seeds]) / task.d**0.5
        )
        return cls(torch.zeros(len(seeds), task.T), torch.zeros_like(init) if zero else init, target)


def gradients(task: SingleLocation, m: Ensemble, n: int, rngs: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
    """(dL/da, dL/dW) of a batch of n sequences for each model, drawn with the data summed out."""
    others, d = task.T - task.B, task.d
    s = m.a.softmax(-1)
    s_other, s_relevant = s[:, :others], s[:, others:].sum(-1)[:, None, None]
    s2 = s_other.square().sum(-1)[:, None]  # |s|² over the other tokens, (S, 1)

    frequent = {"frequent": torch.eye(d)[0]}  # x~ is the theory's
    x = torch.stack([task.relevant(n, rng, frequent) for rng in rngs])  # (S, n, d)
    normals = torch.stack([torch.randn(n * d + others, generator=rng) for rng in rngs])
    u = normals[:, : n * d].view(-1, n, d) * (s2 / d).sqrt()[:, :, None]
    xi = normals[:, n * d :]

    seen = s_relevant * x + u  # what attention passes on, (S, n, d)
    error = seen @ m.W.mT - x @ m.target.mT
    dW = error.mT @ seen / n
    v = error @ m.W
    v_u = (v * u).sum(-1).mean(-1, keepdim=True)  # (S, 1)
    v_x = (v * x).sum(-1).mean(-1, keepdim=True)

    spread = (v.square().sum((-2, -1)) / d).sqrt()[:, None] / n
    rest = xi - s_other * (s_other * xi).sum(-1, keepdim=True) / s2
    by_token = torch.cat([s_other * v_u / s2 + spread * rest, v_x.expand(-1, task.B)], dim=-1)  # (S, T)
    da = s * (by_token - v_u - s_relevant[:, :, 0] * v_x)
    return da, dW


def train(
    task: SingleLocation,
    seeds: Sequence[int],
    steps: int,
    *,
    batch: int = 32,
    lr: float = 1.0,
    zero_start: bool = False,
    every: int = 20,
    progress: Callable[[int], None] = lambda step: None,
) -> pd.DataFrame:
    """Train one model a seed by SGD; rows (seed, step, loss, alpha, w) every few steps, with the expected test loss."""
    m = Ensemble.start(task, seeds, zero=zero_start)
    rngs = [stream(seed, "data") for seed in seeds]
    norm = m.target.square().sum((-2, -1)).sqrt()
    rows = []
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            loss = population_loss(m.a, m.W, m.target, task.B)
            alpha = m.a.softmax(-1)[:, -1]
            w = (m.W * m.target).sum((-2, -1)) / norm
            rows += [
                (seed, step, *values)
                for seed, *values in zip(seeds, loss.tolist(), alpha.tolist(), w.tolist(), strict=True)
            ]
            progress(step)
        da, dW = gradients(task, m, batch, rngs)
        m.a -= lr * da
        m.W -= lr * dW
    return pd.DataFrame(rows, columns=["seed", "step", "loss", "alpha", "w"])
