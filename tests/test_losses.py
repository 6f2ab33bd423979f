"""The reduced losses: gradients and Hessians against finite differences, limits and symmetries."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import examples
from unstuck.theory import ThreeVariableLoss, TwoVariableLoss

LOSSES = [
    TwoVariableLoss(64, 16),  # vanilla, Eq. 3-4
    TwoVariableLoss(64, 16, 8),  # in-context repetition, Eq. 12-14
    ThreeVariableLoss(64, 16, 1, 0.3),  # cross-sample repetition, Eq. 17-21
    ThreeVariableLoss(64, 16, 4, 0.3),  # both
]


def finite_difference(f, x, i, h=1e-5):
    up, down = list(x), list(x)
    up[i] += h
    down[i] -= h
    return (np.asarray(f(*up)) - np.asarray(f(*down))) / (2 * h)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_gradient_and_hessian_are_derivatives_of_the_loss(loss, data):
    weight = st.floats(-3, 12)
    n = len(loss.names)
    x = [data.draw(weight) for _ in range(n - 1)] + [data.draw(st.floats(-3, 9))]
    gradient, hessian = np.array(loss.gradient(*x)), loss.hessian(*x)
    for i in range(n):
        assert gradient[i] == pytest.approx(finite_difference(loss.value, x, i), rel=2e-6, abs=2e-8)
        assert hessian[i] == pytest.approx(finite_difference(loss.gradient, x, i), rel=2e-6, abs=2e-8)
    assert np.allclose(hessian, hessian.T, rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_float_and_an_array_give_the_same(loss):
    x = (*([1.3] * (len(loss.names) - 1)), 2.0)
    many = [np.full((3, 2), v) for v in x]
    assert loss.value(*many)[2, 1] == pytest.approx(loss.value(*x), rel=1e-14)
    assert loss.hessian(*many).shape == (3, 2, len(x), len(x))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_training_starts_at_one_half_with_uniform_attention(loss):
    zeros = [0.0] * len(loss.names)
    assert loss.value(*zeros) == pytest.approx(0.5, rel=1e-14)
    assert loss.alpha(0.0) == pytest.approx(1 / loss.T, rel=1e-14)


@given(st.integers(2, 10**7), st.floats(0, 1), st.floats(-5, 30))
def test_attention_sums_to_one_and_inverts(T, share, delta_a):
    B = 1 + int(share * (T - 2))
    loss = TwoVariableLoss(T, 4, B)
    A, N = loss.attention(delta_a)
    assert pytest.approx(1, rel=1e-14) == A + N
    alpha = loss.alpha(delta_a)
    assert alpha == pytest.approx(1 / ((T - B) * math.exp(-delta_a) + B), rel=1e-9)
    if N > 1e-6:
        assert loss.delta_a(alpha) == pytest.approx(delta_a, abs=1e-6)


def test_without_frequent_token_three_variables_are_two():
    """With p = 0 every direction is alike: w~ = w_all / sqrt(d), w = w_all sqrt((d-1)/d)."""
    two, three = TwoVariableLoss(128, 9, 3), ThreeVariableLoss(128, 9, 3, 0.0)
    w_all, a = 2.7, 1.4
    split = (w_all / 3, w_all * math.sqrt(8 / 9))
    assert three.value(*split, a) == pytest.approx(two.value(w_all, a), rel=1e-13)
    g_tilde, g, g_a = three.gradient(*split, a)
    along = g_tilde / 3 + g * math.sqrt(8 / 9)
    assert (along, g_a) == pytest.approx(two.gradient(w_all, a), rel=1e-12)


def test_w_inf_is_where_the_gradient_in_w_vanishes():
    loss = TwoVariableLoss(512, 64, 4)
    alpha = np.geomspace(1 / 512, 0.2499, 50)
    w = loss.w_inf(alpha)
    gradient = loss.gradient(w, loss.delta_a(alpha))[0]
    assert np.abs(gradient).max() < 1e-12


def test_the_curvature_along_w_at_the_start():
    """Erratum 11: (T-B)/(dT²), which is 1/(dT) for long sequences."""
    T, d = 10**6, 50
    assert TwoVariableLoss(T, d, 1).hessian(0.0, 0.0)[0, 0] * d * T == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("B", [1, 4])
def test_late_curvature_is_as_erratum_8_says(B):
    """At B alpha = 1 - eps and w at its equilibrium: eps² (1 + 2/(T-B)) along Δa, eps / sqrt(d) across, 1/d along w."""
    T, d, eps = 64, 16, 1e-5
    loss = TwoVariableLoss(T, d, B)
    alpha = (1 - eps) / B
    hessian = loss.hessian(loss.w_inf(alpha), loss.delta_a(alpha))
    assert hessian[1, 1] == pytest.approx(eps**2 * (1 + 2 / (T - B)), rel=1e-3)
    assert hessian[0, 1] == pytest.approx(eps / math.sqrt(d), rel=1e-3)
    assert hessian[0, 0] == pytest.approx(1 / d, rel=1e-3)
