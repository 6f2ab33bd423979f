"""Flows integrated together, against LSODA one after the other."""

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import examples
from refusals import refused
from unstuck.theory import Flow, dormand_prince, plateau_lengths
from unstuck.theory.dormand_prince import ERROR, STAGES, Cells, times_to_reach
from unstuck.theory.integrate import NoConvergence, time_to_reach

THRESHOLDS = [0.499, 0.45, 0.3, 0.1, 0.01, 0.001, 1e-6]


@st.composite
def flows(draw, most_T=10**6, most_d=2000):
    T = draw(st.integers(2, most_T))
    B = draw(st.one_of(st.just(1), st.integers(1, T - 1)))
    p = draw(st.one_of(st.just(0.0), st.floats(0, 1)))
    return Flow(T, draw(st.integers(1, most_d)), B, p, draw(st.sampled_from(["exact", "reduced"])))


def tight(flow, threshold):
    """LSODA at a tolerance far below what is tested; nan where it fails."""
    try:
        return time_to_reach(flow.loss, flow.mobility, flow.test_loss, threshold, rtol=1e-12, atol=1e-14)
    except NoConvergence:
        return math.nan


@given(st.lists(flows(), min_size=1, max_size=6), st.sampled_from(THRESHOLDS))
@settings(max_examples=examples(60), deadline=None)
def test_together_they_take_as_long_as_alone(cells, threshold):
    cells = [flow for flow in cells if not flow.plateau(threshold).never]
    with mock.patch.object(dormand_prince, "LEAST_STEPS", 1000):
        found = times_to_reach(Cells.of(cells), threshold)
    for flow, time in zip(cells, found, strict=True):
        assert math.isnan(time) or time == pytest.approx(tight(flow, threshold), rel=1e-6)


@given(flows(), st.sampled_from(THRESHOLDS))
@settings(max_examples=examples(60), deadline=None)
def test_a_grid_has_an_answer_where_a_single_flow_has_one(flow, threshold):
    alone = flow.plateau(threshold)
    time = plateau_lengths(flow.T, flow.d, flow.B, flow.p, flow.kind, threshold).item()
    assert math.isinf(time) == alone.never
    assert math.isfinite(time) == (alone.time is not None)
    if alone.time is not None:
        assert time == pytest.approx(alone.time, rel=1e-4 if threshold < 0.001 else 2e-6)  # LSODA's own error


@pytest.mark.parametrize("kind", ["exact", "reduced"])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.3])
def test_the_sizes_of_the_papers_need_no_other_solver(p, kind, monkeypatch):
    monkeypatch.setattr(dormand_prince, "LEAST_STEPS", 1000)
    T, d, B = np.meshgrid(2 ** np.arange(6, 17, 2), 2 ** np.arange(4, 10), [1, 8, 32])
    cells = [Flow(*map(int, cell), p=p, kind=kind) for cell in zip(T.flat, d.flat, B.flat, strict=True)]
    assert np.isfinite(times_to_reach(Cells.of(cells), 0.1)).all()


def test_stiff_cells_are_given_up_here_and_answered_by_lsoda():
    stiff = Flow(1000, 10_000, p=0.999)
    assert np.isnan(times_to_reach(Cells.of([stiff]), 0.1)).all()
    assert plateau_lengths(1000, 10_000, p=0.999).item() == stiff.plateau().time


@pytest.mark.parametrize("kind", ["exact", "reduced"])
def test_far_corners_get_lsodas_answer(kind):
    for T in (2, 10**9):
        for p in (0.0, 1e-9, 1 - 1e-9, 1.0):
            found = plateau_lengths(T, [1, 10**7], [[1], [T - 1]], p, kind)
            alone = [[Flow(T, d, B, p, kind).plateau() for d in (1, 10**7)] for B in (1, T - 1)]
            for time, plateau in zip(found.flat, (x for row in alone for x in row), strict=True):
                missing = math.inf if plateau.never else math.nan
                expected = missing if plateau.time is None else plateau.time
                assert time == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_no_answer_of_lsoda_is_no_answer_of_a_grid(monkeypatch):
    monkeypatch.setattr("unstuck.theory.integrate.MAX_SOLVER_STEPS", 3)
    monkeypatch.setattr(dormand_prince, "LEAST_STEPS", 3)
    monkeypatch.setattr(dormand_prince, "STEPS_A_CELL", 1)
    assert np.isnan(plateau_lengths(64, [4, 8])).all()


def test_a_cell_does_not_depend_on_its_company(monkeypatch):
    T, d = np.meshgrid([50, 500, 5000], [4, 40, 400])
    together = plateau_lengths(T, d, p=0.1)
    monkeypatch.setattr(dormand_prince, "AT_ONCE", 2)
    assert plateau_lengths(T, d, p=0.1) == pytest.approx(together, rel=1e-7)


def test_an_empty_grid_has_no_plateaus():
    assert plateau_lengths(np.zeros((0, 3), dtype=int), 4).shape == (0, 3)


@pytest.mark.parametrize(("T", "d", "B", "field"), [([8, 1], 4, 1, "T"), (8, [4, 0], 1, "d"), (8, 4, [1, 8], "B")])
def test_one_impossible_cell_is_refused_by_name(T, d, B, field):
    with refused(field):
        plateau_lengths(T, d, B)


def test_the_tableau_satisfies_the_order_conditions():
    """Of trees with up to three nodes, in rational numbers: consistency, orders 1 to 3 of both solutions."""
    rows = [[], *([Fraction(a).limit_denominator(10**6) for a in row] for row in STAGES)]
    fifth = [*rows[-1], Fraction(0)]
    fourth = [b - Fraction(e).limit_denominator(10**6) for b, e in zip(fifth, ERROR, strict=True)]
    nodes = [sum(row, Fraction(0)) for row in rows]
    assert nodes == [0, Fraction(1, 5), Fraction(3, 10), Fraction(4, 5), Fraction(8, 9), 1, 1]
    inner = [sum((a * c for a, c in zip(row, nodes, strict=False)), Fraction(0)) for row in rows]
    for weights, order in ((fifth, 5), (fourth, 4)):
        for power in range(order):
            assert sum(b * c**power for b, c in zip(weights, nodes, strict=True)) == Fraction(1, power + 1)
        assert sum(b * x for b, x in zip(weights, inner, strict=True)) == Fraction(1, 6)
