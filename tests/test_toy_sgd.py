"""SGD with the data summed out: its gradients have the distribution of the plain sampler's."""

import numpy as np
import pytest
import torch
from scipy import stats

from unstuck.models.toy import ToyAttention, population_loss
from unstuck.tasks.single_location import SingleLocation
from unstuck.theory import Flow
from unstuck.training.seeds import stream
from unstuck.training.toy_sgd import Ensemble, gradients, train

TASKS = [
    SingleLocation.for_toy(T=7, d=3),
    SingleLocation.for_toy(T=7, d=3, B=2),
    SingleLocation.for_toy(T=7, d=3, B=2, p=0.4),
]
BATCH, DRAWS = 4, 20_000


def somewhere(task: SingleLocation) -> Ensemble:
    """A point in the middle of training, where nothing is zero or symmetric."""
    rng = stream(3, "test")
    a = torch.randn(1, task.T, generator=rng) * 0.7
    return Ensemble(a, torch.randn(1, 3, 3, generator=rng), torch.randn(1, 3, 3, generator=rng))


def plain_gradients(task: SingleLocation, m: Ensemble, draws: int) -> torch.Tensor:
    """The same by automatic differentiation on whole sequences: (draws, T + d²)."""
    model = ToyAttention(task.T, task.d)
    rng = stream(1, "plain")

    def batch_loss(a: torch.Tensor, W: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        y = torch.func.functional_call(model, {"a": a, "W": W}, (tokens,))
        return 0.5 * (y - tokens[:, -1] @ m.target[0].T).square().sum(-1).mean()

    tokens = task.sample(draws * BATCH, rng, task.world(stream(0, "world"))).inputs.view(draws, BATCH, task.T, task.d)
    da, dW = torch.vmap(torch.func.grad(batch_loss, (0, 1)), (None, None, 0))(m.a[0], m.W[0], tokens)
    return torch.cat([da, dW.flatten(1)], 1)


def summed_out_gradients(task: SingleLocation, m: Ensemble, draws: int) -> torch.Tensor:
    """Many draws at once: an ensemble of copies of the same model."""
    many = Ensemble(m.a.expand(draws, -1), m.W.expand(draws, -1, -1), m.target.expand(draws, -1, -1))
    da, dW = gradients(task, many, BATCH, [stream(seed, "data") for seed in range(draws)])
    return torch.cat([da, dW.flatten(1)], 1)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_gradients_have_the_plain_samplers_distribution(task):
    m = somewhere(task)
    plain = plain_gradients(task, m, DRAWS).double().numpy()
    ours = summed_out_gradients(task, m, DRAWS).double().numpy()
    scale = plain.std(axis=0)
    # means: each coordinate within five standard errors
    error = np.abs(ours.mean(0) - plain.mean(0)) / (scale * np.sqrt(2 / DRAWS))
    assert error.max() < 5
    # covariances of all pairs of coordinates, in units of the standard deviations
    apart = (np.cov(ours.T) - np.cov(plain.T)) / np.outer(scale, scale)
    assert np.abs(apart).max() < 0.15
    # whole distributions, coordinate by coordinate and along random directions
    directions = np.hstack(
        [np.diag(1 / scale), np.random.default_rng(0).normal(size=(len(scale), 10)) / scale[:, None]]
    )
    p_values = [stats.ks_2samp(ours @ v, plain @ v).pvalue for v in directions.T]
    assert min(p_values) > 0.01 / len(p_values)


@pytest.mark.parametrize("task", TASKS[:2], ids=str)
def test_mean_gradient_is_that_of_the_population_loss(task):
    m = somewhere(task)
    a, W = m.a.clone().requires_grad_(), m.W.clone().requires_grad_()
    population_loss(a, W, m.target, task.B).sum().backward()
    exact = torch.cat([a.grad, W.grad.flatten(1)], 1)[0]
    ours = summed_out_gradients(task, m, DRAWS)
    assert torch.all((ours.mean(0) - exact).abs() < 5 * ours.std(0) / DRAWS**0.5)


def test_population_loss_is_the_mean_over_sequences():
    task = SingleLocation.for_toy(T=5, d=3, B=2)
    m = somewhere(SingleLocation.for_toy(T=5, d=3))
    model = ToyAttention(5, 3)
    with torch.no_grad():
        model.a.copy_(m.a[0])
        model.W.copy_(m.W[0])
        tokens = task.sample(400_000, stream(0, "data"), task.world(stream(0, "world"))).inputs
        losses = 0.5 * (model(tokens) - tokens[:, -1] @ m.target[0].T).square().sum(-1)
    expected = population_loss(m.a[0], m.W[0], m.target[0], B=2).item()
    assert losses.mean().item() == pytest.approx(expected, abs=5 * losses.std().item() / 400_000**0.5)


def test_a_seed_gives_the_same_curve_alone_and_in_company():
    """Seeds are trained side by side, but none sees another's numbers."""
    task = SingleLocation.for_toy(T=16, d=8)
    both = train(task, [0, 1], 100)
    alone = train(task, [1], 100)
    together = both[both["seed"] == 1].reset_index(drop=True)
    assert together[["loss", "alpha", "w"]].to_numpy() == pytest.approx(
        alone[["loss", "alpha", "w"]].to_numpy(), rel=1e-4
    )
    again = train(task, [0, 1], 100)
    assert again.equals(both)


def test_from_rest_sgd_follows_the_flow():
    """Small but real training: T = d = 32 from W = 0 must emerge where the exact flow says, within 5%."""
    curve = train(SingleLocation.for_toy(T=32, d=32), [0, 1, 2], 400, batch=256, zero_start=True, every=2)
    crossed = curve[curve["loss"] <= 0.1].groupby("seed")["step"].min()
    assert len(crossed) == 3
    assert crossed.mean() == pytest.approx(Flow(32, 32).plateau().time, rel=0.05)


@pytest.mark.slow
def test_figure_9_at_full_scale():
    curve = train(SingleLocation.for_toy(), [0, 1], 7000)
    crossed = curve[curve["loss"] <= 0.1].groupby("seed")["step"].min()
    assert crossed.between(5400, 6800).all()
