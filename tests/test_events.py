"""Events of a curve: exits against a definition in plain loops, and what no unit of loss or steps may change."""

import math
import time
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import examples
from unstuck.curve import Curve
from unstuck.forecast import CircuitRule, ExitRule
from unstuck.forecast.events import MOST_ROWS, can_tell, finite_loss


def curve_of(losses, every=10.0, **columns):
    return Curve.from_rows(
        {"step": every * i, "loss": float(x), **{k: float(v[i]) for k, v in columns.items()}}
        for i, x in enumerate(losses)
    )


def stairs(levels, rows, noise=0.0, seed=0):
    """Plateaus at these levels, of so many rows each."""
    clean = np.repeat(levels, rows)
    return clean + noise * np.random.default_rng(seed).standard_normal(len(clean))


def spread_of_a_row(values):
    differences = [b - a for a, b in pairwise(values)]
    middle = median(differences)
    return 1.4826 * median(abs(x - middle) for x in differences) / math.sqrt(2)


def stands_by_definition(steps, losses, fall=0.2, noises=5.0):
    """Level and threshold at the last row, or None: two halves of the recent past that differ by little."""
    now = steps[-1]

    def part(low, high):
        return [x for s, x in zip(steps, losses, strict=True) if low * now <= s <= high * now]

    first, second, last = part(0.5, 0.75), part(0.75, 1), part(0.8, 1)
    if len(first) < 2 or len(last) < 3:
        return None
    needed = max(fall * abs(median(last)), noises * spread_of_a_row(first + second))
    if median(first) - median(second) > needed / 2 or median(losses[-3:]) < median(last) - needed / 2:
        return None
    return median(last), median(last) - needed


def exits_by_definition(steps, losses):
    """For each row at which the loss stands the first later row whose median of three is below the threshold."""
    stood, known = [], None
    for i in range(len(steps)):
        here = stands_by_definition(steps[: i + 1], losses[: i + 1])
        if here is None:
            continue
        if known and known[1] is not None and 0.8 * steps[i] <= known[1] < steps[i] and here[0] >= known[0]:
            continue
        later = [j for j in range(max(2, i + 1), len(steps)) if median(losses[j - 2 : j + 1]) < here[1]]
        at = None
        if later:
            below = next(j for j in range(later[0] - 2, later[0] + 1) if j > i and losses[j] < here[1])
            before = losses[below - 1]
            share = (before - here[1]) / (before - losses[below]) if before > here[1] else 1.0
            at = max(steps[below - 1] + share * (steps[below] - steps[below - 1]), steps[i])
        known = (here[1], at)
        stood.append((steps[i], at))
    ahead = [*(step for step, _ in stood), math.inf][1:]
    return [at for (_, at), following in zip(stood, ahead, strict=True) if at is not None and following > at]


LOSSES = st.builds(
    stairs,
    levels=st.lists(st.floats(0.05, 5), min_size=1, max_size=4),
    rows=st.integers(4, 25),
    noise=st.sampled_from([0.0, 0.01, 0.1]),
    seed=st.integers(0, 99),
)


@given(LOSSES)
@settings(max_examples=examples(150), deadline=None)
def test_exits_are_those_of_the_definition(losses):
    steps = (10.0 * np.arange(len(losses))).tolist()
    found = ExitRule().exits(curve_of(losses))
    assert found == pytest.approx(exits_by_definition(steps, losses.tolist()))
    assert found == sorted(found)
    for at in found:
        *_, level = (v for i, v, left in ExitRule().standing(np.array(steps), losses) if left == at)
        assert min(losses[np.array(steps) >= at]) < level.left_below < level.value


@given(LOSSES, st.floats(1e-3, 1e3), st.sampled_from([0.01, 0.5, 2.0, 1000.0]))
@settings(max_examples=examples(60), deadline=None)
def test_units_of_loss_and_steps_change_no_exit(losses, loss_unit, step_unit):
    found = ExitRule().exits(curve_of(losses))
    assert ExitRule().exits(curve_of(loss_unit * losses)) == pytest.approx(found)
    assert ExitRule().exits(curve_of(losses, every=10 * step_unit)) == pytest.approx([step_unit * x for x in found])


def test_every_plateau_of_a_ladder_is_left_once():
    losses = np.concatenate([np.full(int(20 * 2.2**k), level) for k, level in enumerate((3.0, 2.0, 1.0, 0.4))])
    found = ExitRule().exits(curve_of(losses))
    assert found == pytest.approx([195, 195 + 440, 195 + 440 + 960], abs=10)
    assert len(ExitRule(fall=0.4).exits(curve_of(losses))) == 2  # from 3 to 2 is a fall by a third


def test_a_loss_that_returns_to_its_level_stands_there_again():
    """A dip of 20 rows, and an exit long after it."""
    losses = np.concatenate([np.full(100, 1.0), np.full(20, 0.6), np.full(280, 1.0), np.full(20, 0.5)])
    rule = ExitRule()
    steps, values = finite_loss(curve_of(losses))
    assert [s for i, _, _ in rule.standing(steps, values) if (s := steps[i]) > 2000]
    assert rule.exits(curve_of(losses)) == pytest.approx([994, 3994], abs=10)


def test_falling_and_constant_losses():
    rule = ExitRule()
    falls = 5 * 0.9 ** np.arange(60.0)
    assert not list(rule.standing(*finite_loss(curve_of(falls))))
    for value in (0.0, 1.0, -2.0):
        (*_, (row, level, left)) = rule.standing(*finite_loss(curve_of(np.full(40, value))))
        assert (row, level.value, level.noise, left) == (39, value, 0.0, None)
    assert rule.exits(curve_of(stairs([-1.0, -2.0], 30))) == pytest.approx([292], abs=10)


def test_a_level_needs_rows_in_both_parts_of_the_recent_past():
    for steps in ([], [0.0], [0.0, 100.0], [96.0, 97.0, 98.0, 99.0, 100.0], [50.0, 60.0, 99.0, 100.0]):
        assert not can_tell(np.array(steps))
    assert can_tell(np.array([50.0, 60.0, 98.0, 99.0, 100.0]))


def test_what_is_done_has_fallen_far_from_its_highest_level():
    rule = ExitRule(done=0.2)
    for losses, done in (([1.0, 0.15], True), ([1.0, 0.3], False), ([1.0], False), ([-3.0, -0.5], False)):
        steps, values = finite_loss(curve_of(stairs(losses, 60)))
        assert rule.is_done([level for _, level, _ in rule.standing(steps, values)]) == done


def test_the_exits_of_a_long_loss_take_little_time():
    rows = 12 * MOST_ROWS
    losses = stairs([1.0, 0.5], rows // 2, noise=0.02)
    began = time.process_time()
    found = ExitRule().exits(curve_of(losses, every=1.0))
    assert time.process_time() - began < 8
    assert found == pytest.approx([rows // 2], rel=1e-3)


def test_induction_heads_form_at_the_first_of_two_measurements():
    steps = np.arange(8)
    advantage = [0.1, 2.5, 0.2, 1.0, 2.1, math.nan, 2.2, 3.0]
    curve = curve_of(np.ones(8), copy_advantage=advantage, induction_0_0=np.full(8, 0.9))
    assert CircuitRule().formed(curve) == 40
    assert CircuitRule(nats=2.15).formed(curve) == 60
    assert CircuitRule(nats=4).formed(curve) is None
    scores = curve_of(np.ones(8), induction_0_0=0.1 * steps, induction_0_1=np.zeros(8))
    assert CircuitRule().formed(scores) == 50
    assert CircuitRule(score=0.8).formed(scores) is None
    assert CircuitRule().formed(curve_of(np.ones(8))) is None


def test_a_gain_without_a_head_that_attends_is_no_induction():
    advantage = np.full(8, 3.0)
    assert CircuitRule().formed(curve_of(np.ones(8), copy_advantage=advantage)) == 0
    chance = curve_of(np.ones(8), copy_advantage=advantage, induction_0_0=np.full(8, 0.03))
    assert CircuitRule().formed(chance) is None
    later = np.where(np.arange(8) < 5, 0.03, 0.4)
    assert CircuitRule().formed(curve_of(np.ones(8), copy_advantage=advantage, induction_0_0=later)) == 50
    now_and_then = np.where(np.arange(8) % 2, 0.4, math.nan)  # a row without scores shows nothing against heads
    assert CircuitRule().formed(curve_of(np.ones(8), copy_advantage=advantage, induction_0_0=now_and_then)) == 0
