"""The closed forms against the simulated flows, where they claim to hold."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from unstuck.theory import (
    Flow,
    blow_up_time,
    catch_up_time,
    escape_time,
    escape_time_eq6,
    finish_time,
    linearised,
    plateau_estimate,
    progress,
    rate,
)

FLOWS = [
    Flow(10**6, 10**5, kind="reduced"),
    Flow(10**6, 10**5, 8, kind="reduced"),
    Flow(10**6, 10**5, 8, kind="exact"),
    Flow(10**6, 10**5, 1, 0.01),
    Flow(10**6, 10**5, 8, 0.01),
]


@pytest.mark.parametrize("flow", FLOWS, ids=str)
def test_linearised_solution_is_the_early_flow(flow):
    t = np.linspace(0.05, 0.3, 6) / rate(flow)
    path, line = flow.trajectory(times=t), linearised(flow, t)
    assert path.w == pytest.approx(line.w, rel=2e-3)
    assert path.delta_a == pytest.approx(line.delta_a, rel=0.025)  # the next term in Δa is (λt)²/4
    assert 0.5 - path.test_loss == pytest.approx(0.5 - line.loss, rel=5e-3)
    if flow.p:
        assert path.w_tilde == pytest.approx(line.w_tilde, rel=2e-3)


@pytest.mark.parametrize("flow", FLOWS, ids=str)
def test_escape_time_is_when_the_early_loss_has_fallen(flow):
    """Choose how far to fall such that Δa is still small there; then the simulated time agrees."""
    for lam_t in (0.1, 0.2, 0.3):
        eps = 1 - 2 * float(linearised(flow, lam_t / rate(flow)).loss)
        t = escape_time(flow, eps)
        assert t == pytest.approx(lam_t / rate(flow), rel=1e-6)
        simulated = flow.trajectory(times=[0.0, t]).test_loss[1]
        assert 1 - 2 * simulated == pytest.approx(eps, rel=5e-3)


@given(st.integers(1, 2000), st.floats(0, 1), st.sampled_from(["exact", "reduced"]), st.integers(1, 20))
def test_the_first_fall_of_the_test_loss_does_not_depend_on_p(d, p, kind, B):
    """At t = 0 the test loss falls at B²/(d T²) for every p and either flow: σ~ + (d-1) σ = 1."""
    flow = Flow(10**5, d, B, p, kind)
    n = len(flow.loss.names)
    start = [0.0] * n
    slope = sum(
        -m * a * b
        for m, a, b in zip(
            (1.0,) * (n - 1) + (flow.mobility,),
            flow.loss.gradient(*start),
            flow.test_loss.gradient(*start),
            strict=True,
        )
    )
    assert slope == pytest.approx(-(B**2) / (d * flow.T**2), rel=1e-12)
    t = 1e-6 / rate(flow)
    assert (float(linearised(flow, t).loss) - 0.5) / t == pytest.approx(slope, rel=1e-3)


@given(st.integers(1, 10**5), st.floats(0, 1))
def test_the_cross_sample_factor_is_exact(d, p):
    """σ~² + (d-1) σ² = (1 + p² (d-1)) / d (erratum 9)."""
    sigma = (1 - p) / d
    direct = math.sqrt((p + sigma) ** 2 + (d - 1) * sigma**2)
    assert rate(Flow(1000, d, p=p, kind="reduced")) * 1000 == pytest.approx(direct, rel=1e-9)


def test_small_p_does_not_slow_emergence():
    """Erratum 9: at d = 64, p = 0.02 the plateau is 0.9874 of that at p = 0; the paper's factor says 1.0071."""
    measured = Flow(4096, 64, p=0.02, kind="reduced").plateau().time / Flow(4096, 64, kind="reduced").plateau().time
    ours = rate(Flow(4096, 64, kind="reduced")) / rate(Flow(4096, 64, p=0.02, kind="reduced"))
    paper = 1 / math.sqrt(0.02**2 * 64 + 0.98**2)
    assert measured == pytest.approx(0.9874, abs=2e-4)
    assert ours == pytest.approx(0.9876, abs=2e-4)
    assert paper == pytest.approx(1.0071, abs=2e-4)


def test_rates_and_escape_times_are_the_formulas_of_the_paper():
    T, d, B, eps = 4096, 64, 8, 0.8
    reduced, exact = Flow(T, d, B, kind="reduced"), Flow(T, d, B)
    assert rate(reduced) == pytest.approx(B / (math.sqrt(d) * T), rel=1e-14)
    assert rate(exact) == pytest.approx(math.sqrt(B) / (math.sqrt(d) * T), rel=1e-14)
    assert escape_time(reduced, eps) == pytest.approx(
        math.sqrt(d) * T / (2 * B) * math.asinh(eps * math.sqrt(d) * T / B), rel=1e-12
    )
    assert escape_time(exact, eps) == pytest.approx(
        math.sqrt(d) * T / (2 * math.sqrt(B)) * math.asinh(eps * math.sqrt(d) * T / B**1.5), rel=1e-12
    )


def test_equation_6_drops_the_two_inside_the_logarithm_and_misses_the_plateau():
    flow = Flow(4096, 64, kind="reduced")
    assert escape_time_eq6(flow) == pytest.approx(166_700, rel=1e-3)
    assert escape_time(flow) - escape_time_eq6(flow) == pytest.approx(math.log(2) / (2 * rate(flow)), rel=1e-6)
    assert escape_time_eq6(flow) / flow.plateau().time == pytest.approx(3.97, abs=0.02)


def test_blow_up_time_is_the_integral_it_is_derived_from():
    flow = Flow(4096, 64, 8)
    m, c = 1 / 8, 8 / (4096 * 8)
    integral = quad(lambda v: math.exp(-m * v * v / 2) / c, 0, np.inf)[0]
    assert blow_up_time(flow) == pytest.approx(integral, rel=1e-9)
    assert blow_up_time(flow) == pytest.approx(math.sqrt(math.pi / 2) * 8 * 4096 / math.sqrt(8), rel=1e-12)


@pytest.mark.parametrize("d", [16, 32, 64, 128, 256, 512])
@pytest.mark.parametrize("T", [1024, 2048, 4096, 2**20])
def test_blow_up_time_is_the_plateau_within_5_percent_and_with_its_corrections_within_1(T, d):
    flow = Flow(T, d, kind="reduced")
    measured = flow.plateau().time
    assert blow_up_time(flow) == pytest.approx(measured, rel=0.05)
    assert plateau_estimate(flow) == pytest.approx(measured, rel=0.01)


def test_the_drag_is_one_minus_a_quarter_pi():
    """For T to infinity what the blow-up time misses is (1 - π/4) / sqrt(d) of sqrt(d) T, to first order in
    1/sqrt(d)."""
    for d, within in ((100, 0.06), (10**4, 0.01), (10**6, 0.01)):
        flow = Flow(10**9, d, kind="reduced")
        missed = (flow.plateau(0.3).time - blow_up_time(flow)) * rate(flow)
        assert missed * math.sqrt(d) == pytest.approx(1 - math.pi / 4, rel=within)


@pytest.mark.parametrize("kind", ["exact", "reduced"])
@pytest.mark.parametrize(("B", "p"), [(8, 0.0), (1, 0.05), (8, 0.05), (1, 0.3)])
def test_the_estimate_knows_drag_and_finish_of_every_flow(B, p, kind):
    """At T = 10^8 the drag is what is left of the plateau beyond blow-up and finish, within 5% of itself."""
    flow = Flow(10**8, 256, B, p, kind)
    drag = plateau_estimate(flow) - blow_up_time(flow) - finish_time(flow)
    measured = flow.plateau().time - blow_up_time(flow) - finish_time(flow)
    assert drag == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_finish_is_regression_with_attention_given(p):
    """With B = T - 1 attention is on the relevant token from the start: the plateau is the finish."""
    flow = Flow(10**7, 50, 10**7 - 1, p)
    for threshold in (0.4, 0.1, 0.01):
        assert finish_time(flow, threshold) == pytest.approx(flow.plateau(threshold).time, rel=1e-3)


@pytest.mark.parametrize("kind", ["exact", "reduced"])
@pytest.mark.parametrize(("T", "B", "within"), [(512, 16, 0.09), (512, 4, 0.04), (4096, 16, 0.03), (65536, 16, 0.01)])
def test_the_estimate_holds_with_copies_and_a_frequent_token(T, B, within, kind):
    """The frequent token is learnt while attention is small, and attention then waits for the other directions."""
    for d, p in itertools.product((16, 64, 256), (0.01, 0.05, 0.2, 0.5, 0.8)):
        flow = Flow(T, d, B, p, kind)
        assert plateau_estimate(flow) == pytest.approx(flow.plateau().time, rel=within)


def test_waiting_for_the_other_directions_is_a_fifth_of_the_plateau():
    flow = Flow(4096, 256, 16, 0.2)
    plateau = flow.plateau().time
    assert (plateau_estimate(flow) - catch_up_time(flow) + finish_time(flow)) / plateau == pytest.approx(0.80, abs=0.01)
    assert plateau_estimate(flow) / plateau == pytest.approx(0.98, abs=0.01)


@pytest.mark.parametrize("kind", ["exact", "reduced"])
def test_without_noise_attention_and_weights_keep_a_balance(kind):
    """m (w² + w~²) / 2 = Δa + (B / (T - B)) (e^Δa - 1) along the whole flow, once noise is negligible (d large)."""
    flow = Flow(10**6, 10**5, 100, 0.05, kind)
    path = flow.trajectory(times=np.linspace(0.1, 1.0, 10) * flow.plateau().time)
    left = flow.mobility * (path.w**2 + path.w_tilde**2) / 2
    right = path.delta_a + flow.B / (flow.T - flow.B) * np.expm1(path.delta_a)
    assert left == pytest.approx(right, rel=0.02)


@pytest.mark.parametrize("p", [0.0, 1e-9, 1e-4, 0.5, 0.999, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("d", [1, 2, 3, 1000, 10**7])
@pytest.mark.parametrize("T", [2, 3, 100, 10**9])
def test_the_estimate_has_a_value_in_every_corner(T, d, p):
    for B, kind, threshold in itertools.product({1, min(7, T - 1), T - 1}, ("exact", "reduced"), (1e-6, 0.1, 0.499)):
        assert plateau_estimate(Flow(T, d, B, p, kind), threshold) > 0


@pytest.mark.parametrize(("d", "share"), [(2, 0.91), (4, 0.94), (16, 0.97), (256, 0.99)])
def test_the_progress_law_needs_many_dimensions(d, share):
    """The end as told from a fifth of the plateau, over the truth, at T = 10^6."""
    flow = Flow(10**6, d)
    end = flow.plateau().time
    gap = flow.trajectory(times=[0.0, 0.2 * end]).delta_a[1]
    assert 0.2 / progress(gap) == pytest.approx(share, abs=0.005)


def test_only_what_never_ends_is_infinite():
    assert plateau_estimate(Flow(100, 10, p=1.0)) == math.inf
    assert math.isfinite(plateau_estimate(Flow(100, 10, p=0.99)))
    assert plateau_estimate(Flow(1000, 1, p=1.0)) == pytest.approx(Flow(1000, 1, p=1.0).plateau().time, rel=0.05)
    assert plateau_estimate(Flow(1000, 2, p=1.0), 0.4) == pytest.approx(
        Flow(1000, 2, p=1.0).plateau(0.4).time, rel=0.05
    )


@pytest.mark.parametrize(
    "flow", [Flow(2**20, 256, B, p, k) for B in (1, 8) for p in (0.0, 0.05) for k in ("exact", "reduced")], ids=str
)
def test_progress_law_holds_for_every_flow(flow):
    end = flow.plateau().time
    fractions = np.linspace(0.05, 0.95, 19)
    gap = flow.trajectory(times=fractions * end).delta_a
    assert progress(gap) == pytest.approx(fractions, abs=0.015)


def test_progress_runs_from_zero_to_one():
    assert progress(0.0) == 0
    assert progress(-0.1) == 0  # a gap that has drifted the wrong way: nothing has happened yet
    assert progress(50.0) == pytest.approx(1)
    assert np.all(np.diff(progress(np.linspace(0, 5, 100))) > 0)
