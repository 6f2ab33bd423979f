"""The flow of several heads: reference stage times, brute force on logits, competition and cooperation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from refusals import refused
from unstuck.errors import BadInput
from unstuck.theory.heads import HeadFlow


@pytest.mark.parametrize(("q", "first"), [(1, 4.56), (2, 21.8)])
@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-9])
def test_the_first_stage_ends_when_the_facts_say_whatever_the_perturbation(q, first, eps):
    assert HeadFlow(q=q, eps=eps).stage_times(limit=60)[0] == pytest.approx(first, rel=0.02)


@pytest.mark.parametrize(("eps", "second"), [(1e-3, 40), (1e-6, 327), (1e-9, 1178)])
def test_the_second_stage_waits_longer_the_smaller_the_perturbation(eps, second):
    assert HeadFlow(q=2, eps=eps).stage_times(limit=2000)[1] == pytest.approx(second, rel=0.02)


def test_the_exact_flow_is_gradient_descent_on_logits():
    """A thousand small steps of plain descent on V and on the logits themselves."""
    flow = HeadFlow(T=8, eps=0.05, strengths=(1.5, 1.0), q=2)
    V = np.zeros((2, 2))
    a = flow.start[4:].reshape(2, 8).copy()
    lr, steps = 2e-3, 6000
    for _ in range(steps):
        e = np.exp(a)
        s = e / e.sum(1, keepdims=True)
        R = flow.target - V.T @ s
        gV = -(s @ R.T)
        gs = -(V @ R)  # dL/ds
        ga = s * (gs - (s * gs).sum(1, keepdims=True))  # the softmax's Jacobian
        V, a = V - lr * gV, a - lr * ga
    path = flow.trajectory(until=lr * steps)
    assert np.allclose(path.V[-1], V, atol=5e-3)
    e = np.exp(a)
    assert np.allclose(path.s[-1], e / e.sum(1, keepdims=True), atol=5e-3)


@given(st.integers(0, 1000), st.sampled_from([1, 2]))
@settings(max_examples=25, deadline=None)
def test_the_velocity_is_minus_the_gradient_and_the_loss_falls(seed, q):
    flow = HeadFlow(T=5, strengths=(1.3, 0.7), heads=3, q=q)
    rng = np.random.default_rng(seed)
    y = rng.normal(size=flow.start.size)
    gradient = np.array([(flow.loss(y + h) - flow.loss(y - h)) / 2e-6 for h in 1e-6 * np.eye(y.size)])
    velocity = flow.velocity(y)
    assert np.allclose(velocity[:6], -gradient[:6], atol=1e-6)
    if q == 2:
        assert np.allclose(velocity, -gradient, atol=1e-6)
    assert gradient @ velocity <= 1e-9  # downhill, for the mirror flow too


@given(st.integers(0, 100))
@settings(max_examples=10, deadline=None)
def test_which_head_is_which_does_not_matter(seed):
    flow = HeadFlow(T=5, strengths=(1.3, 0.7), heads=3)
    y = np.random.default_rng(seed).normal(size=flow.start.size)
    turn = [2, 0, 1]

    def turned(y):
        return np.concatenate([y[:6].reshape(3, 2)[turn].ravel(), y[6:].reshape(3, 5)[turn].ravel()])

    assert flow.loss(turned(y)) == pytest.approx(flow.loss(y))
    assert np.allclose(turned(flow.velocity(y)), flow.velocity(turned(y)))


@pytest.mark.parametrize("q", [1, 2])
def test_identical_heads_stay_identical_and_learn_the_dominant_pattern(q):
    """Competition: the loss comes to rest where only the strongest pattern is learnt, all heads on it."""
    flow = HeadFlow(eps=0.0, q=q)
    path = flow.trajectory(until={1: 60.0, 2: 500.0}[q])  # for ever, but for rounding
    assert path.spread.max() < 1e-6
    assert path.loss[-1] == pytest.approx(flow.levels[1], rel=0.01)
    assert path.s[-1, :, 0].min() > 0.85
    assert np.allclose(path.V[-1].sum(0) * path.s[-1, 0, 0], [1.7**2, 0, 0], atol=0.15)


def test_each_stage_rests_at_the_best_predictor_with_the_patterns_learnt():
    flow = HeadFlow(q=1, eps=1e-6)
    times = flow.stage_times()
    path = flow.trajectory()
    for i, (start, end) in enumerate(itertools.pairwise(times)):
        resting = path.loss[(path.t > start + 0.5 * (end - start)) & (path.t < start + 0.8 * (end - start))]
        assert resting == pytest.approx(flow.levels[i + 1], rel=0.03)
    assert path.loss[-1] < 0.1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_heads_cooperate_in_the_end_though_one_keeps_half_an_eye_on_the_strongest_pattern(seed):
    """Everything is learnt, every pattern has a head of its own; yet the specialisation index ends near 0.65, not 1:
    the head that learns the weakest pattern does so with half of its attention."""
    path = HeadFlow(q=1, eps=1e-6, seed=seed).trajectory(until=600.0)
    assert path.loss[-1] < 1e-4
    share = path.s[-1][:, :3] / path.s[-1][:, :3].sum(1, keepdims=True)
    heads, patterns = linear_sum_assignment(-share)
    index = (share[heads, patterns].mean() - 1 / 3) / (2 / 3)
    assert index == pytest.approx(0.643, abs=0.01)
    assert share[heads, patterns].min() > 0.45


def test_patterns_are_learnt_in_the_order_of_their_strength_wherever_they_sit():
    flow = HeadFlow(strengths=(1.0, 1.7, 2.89), positions=(30, 7, 12), q=1, eps=1e-3)
    path = flow.trajectory(until=400.0)
    learnt = np.einsum("nkj,nkt,jt->nj", path.V, path.s, flow.target / np.array(flow.strengths)[:, None] ** 2)
    half = [path.t[np.flatnonzero(learnt[:, j] > 0.5)[0]] for j in range(3)]
    assert half[2] < half[1] < half[0]


@pytest.mark.parametrize(("q", "low", "high"), [(1, 1.6, 2.4), (2, 2.6, 4.0)])
def test_the_wait_for_the_second_stage_grows_faster_than_log_one_over_eps(q, low, high):
    """Heads that part at a constant rate would wait for log(1/eps). What comes out is about its square for q = 1, more
    for q = 2."""
    eps = np.array([1e-4, 1e-6, 1e-8])
    waits = [HeadFlow(q=q, eps=e).stage_times(limit=1500)[1] for e in eps]
    logs = np.log(1 / eps)
    assert low < np.polyfit(np.log(logs), np.log(waits), 1)[0] < high
    assert np.all(np.diff(np.array(waits) / logs) > 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"q": 3},
        {"strengths": ()},
        {"strengths": (1.0, -1.0)},
        {"positions": (0, 0, 1)},
        {"positions": (0, 1, 99)},
        {"T": 1},
        {"heads": 0},
        {"eps": -1.0},
        {"eps": float("nan")},
    ],
)
def test_impossible_flows_are_refused(wrong):
    with pytest.raises(BadInput):
        HeadFlow(**wrong)


def test_any_start():
    """Heads that start on a pattern each stay there and learn it at once; levels and loss follow from the start."""
    on = np.where(np.eye(3, 40, dtype=bool), 30.0, 0.0)
    flow = HeadFlow(q=2, logits0=on)
    path = flow.trajectory(until=20.0)
    assert path.loss[0] == pytest.approx(flow.levels[0])
    assert path.loss[-1] < 1e-6
    assert np.allclose(path.V[-1], np.diag(flow.strengths), atol=1e-4)
    done = HeadFlow(q=1, V0=np.diag(flow.strengths), logits0=on)
    assert done.trajectory(until=1.0).loss.max() < 1e-9
    assert hash(done) == hash(HeadFlow(q=1, V0=np.diag(flow.strengths).tolist(), logits0=on.tolist()))
    parts = flow.loss_of_patterns(path.V, path.s)
    assert parts.sum(-1) == pytest.approx(path.loss)
    assert parts[0] == pytest.approx([g * g / 2 for g in flow.strengths])


@pytest.mark.parametrize(
    "bad",
    [
        {"V0": np.zeros((2, 3))},
        {"logits0": np.full((3, 40), np.nan)},
        {"V0": "zero"},
        {"strengths": 2.0},
    ],
)
def test_a_start_that_does_not_fit_is_refused(bad):
    with refused(next(iter(bad))):
        HeadFlow(**bad)


# -- Proposition 1


def test_the_regression_variants_gradient_flow_is_that_of_the_heads():
    """Autograd on the expected loss with d x d matrices, and the loss of sampled sequences, beside loss and velocity of
    the flow, which has one number a pattern."""
    import torch

    from unstuck.papers.incremental.regression import D, T, expected_loss, flow_of, task
    from unstuck.training.seeds import stream

    t, rng = task(), np.random.default_rng(3)
    A = t.world(stream(0, "world"))["A"].double()
    logits = rng.standard_normal((3, T))
    flow = flow_of(A, logits)
    v = rng.standard_normal((3, 3))  # of each head in each feature
    unit = A / A.flatten(1).norm(dim=1)[:, None, None]
    V = torch.einsum("kj,jab->kab", torch.tensor(v), unit).requires_grad_()
    a = torch.tensor(logits, requires_grad=True)
    torch.set_default_dtype(torch.float64)
    try:
        loss = expected_loss(A, V, a)
    finally:
        torch.set_default_dtype(torch.float32)
    state = np.concatenate([v.ravel(), logits.ravel()])
    assert loss.item() == pytest.approx(float(flow.loss(state)), rel=1e-6)
    loss.backward()
    velocity = flow.velocity(state)
    assert -torch.einsum("kab,jab->kj", V.grad, unit).numpy().ravel() == pytest.approx(velocity[:9], abs=1e-5)
    assert -a.grad.numpy().ravel() == pytest.approx(velocity[9:], abs=1e-5)
    outside = V.grad - torch.einsum("kj,jab->kab", torch.einsum("kab,jab->kj", V.grad, unit), unit)
    assert outside.abs().max().item() < 1e-5  # the flow never leaves the span of the features

    # The expectation itself, from the task's own sequences, at their last prediction.
    batch = t.sample(40_000, stream(1, "data"), {"A": A.float(), "lag_matrices": t.lag_matrices(A.float(), range(3))})
    said = torch.einsum("ks,kij,nsj->ni", a.detach().softmax(-1).float(), V.detach().float(), batch.inputs)
    sampled = 0.5 * (said - batch.targets[:, -1]).square().sum(-1)
    assert batch.inputs.shape[1:] == (T, D)
    assert sampled.mean().item() == pytest.approx(loss.item(), abs=5 * sampled.std().item() / 200)
