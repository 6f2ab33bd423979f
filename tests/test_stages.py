"""Stages on synthetic ladders whose true times are known: stretched, noised, with rungs that are only passed."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import examples
from refusals import names, refused
from unstuck.laws.stages import early_stop, find_stages


def ladder(times, last, rows=120, noise=0.0, seed=0):
    """A model that is a mixture of the start and of rungs 1, 2, ..., moving to rung i around times[i]."""
    rng = np.random.default_rng(seed)
    step = np.unique(np.concatenate([np.linspace(0, last, rows // 2), np.geomspace(1, last, rows // 2)]).round())
    width = 0.02 * last
    at = np.stack([1 / (1 + np.exp(-(step - t) / width)) for t in times], 1)  # how much of each rung is learnt
    place = at.sum(1)  # 0 at the start, i on rung i
    kl = {f"kl_{i + 1}": 0.02 + np.abs(place - (i + 1)) ** 1.5 for i in range(len(times))}
    table = pd.DataFrame({"step": step, **kl, "specialisation": 0.05 + 0.6 * at[:, -1]})
    for column in kl:
        table[column] *= np.exp(noise * rng.normal(size=len(table)))
    return table


@given(
    gaps=st.lists(st.floats(0.15, 1.0), min_size=4, max_size=5),
    last=st.sampled_from([400, 2000, 50_000]),
    noise=st.sampled_from([0.0, 0.1, 0.3]),
    seed=st.integers(0, 50),
)
@settings(max_examples=examples(80), deadline=None)
def test_stage_times_wherever_they_are(gaps, last, noise, seed):
    ends = np.cumsum(gaps) / np.sum(gaps) * last
    times = ends[:-1]  # the last stage lasts as well
    found = find_stages(ladder(times, last, noise=noise, seed=seed))
    assert found.highest == len(times)
    for rung, (start, end) in zip(found.rungs, zip(times, [*times[1:], None], strict=True), strict=True):
        assert rung.reached == pytest.approx(start, abs=(0.16 if noise > 0.1 else 0.08) * last)
        assert (rung.left is None) == (end is None)
        if end is not None:
            assert rung.left == pytest.approx(end, abs=0.04 * last)
    assert found.cooperation == pytest.approx(times[-1], abs=0.03 * last)


def test_stages_stretch_with_the_steps():
    curve = ladder([100, 250, 300], 400, noise=0.1)
    plain, stretched = find_stages(curve), find_stages(curve.assign(step=7 * curve["step"]))
    for a, b in zip(plain.rungs, stretched.rungs, strict=True):
        assert b.reached == pytest.approx(7 * a.reached)
    assert stretched.cooperation == pytest.approx(7 * plain.cooperation)


def test_a_run_that_stops_lower_on_the_ladder():
    curve = ladder([100, 250, 390], 400)
    found = find_stages(curve[curve["step"] <= 200])
    assert found.highest == 1
    assert [rung.reached is None for rung in found.rungs] == [False, True, True]
    assert found.rungs[0].left is None
    assert found.cooperation is None


def test_a_stray_row_is_no_stage():
    curve = ladder([100, 250, 300], 400)
    row = curve.index[(curve["step"] > 150) & (curve["step"] < 170)][0]
    curve.loc[row, "kl_3"] = 0.01
    assert find_stages(curve).rungs[2].reached > 280


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("rows_before", [0, 1, 3])
def test_a_rung_that_is_only_passed_was_not_reached(rows_before, noise):
    """A run that is nearer to rung 2 all along: KL to rung 1 dips as well, but the model never was that predictor. In
    its first rows it may still be nearest to rung 1."""
    curve = ladder([100, 250, 300], 400, noise=noise)
    curve["kl_2"] = 0.8 * curve[["kl_1", "kl_2"]].min(axis=1)
    curve.loc[: rows_before - 1, "kl_2"] = 2 * curve.loc[: rows_before - 1, "kl_1"]
    first, second, third = find_stages(curve).rungs
    assert first.reached is None
    assert first.left is None
    assert first.nearest == pytest.approx(175, abs=90)  # between the times at which it comes and goes
    assert second.reached == pytest.approx(100, abs=35)
    assert third.reached == pytest.approx(300, abs=30)


def test_a_run_that_gets_worse_ends_where_it_was():
    worse = pd.DataFrame(
        {
            "step": range(10),
            "kl_1": [1, 1, 0.5, 0.3, 0.3, 2, 3, 4, 5, 6],
            "kl_2": [1.1, 1.2, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9],
        }
    )
    found = find_stages(worse)
    assert found.rungs[0].reached == pytest.approx(3, abs=1)
    assert found.rungs[1].reached is None
    assert found.highest == 1


@pytest.mark.parametrize("end", [4.0, 3.14, 3.12])
def test_a_run_that_learnt_nothing_is_on_no_rung(end):
    kl = np.linspace(3.14, end, 40)
    curve = pd.DataFrame({"step": np.arange(40), "kl_1": kl, "kl_2": kl + 0.1, "test_loss": kl})
    found = find_stages(curve)
    assert found.highest == 0
    assert not any(rung.approached for rung in found.rungs)
    assert early_stop(curve).rung == 0


def test_what_is_no_ladder_is_refused():
    with refused("curve", ["step", "loss"], allowed=["kl_1"]):
        find_stages(pd.DataFrame({"step": [0, 1], "loss": [1.0, 2.0]}))
    with refused("curve", ["step", "kl_mean"], allowed=["kl_1"]):
        find_stages(pd.DataFrame({"step": [0, 1], "kl_mean": [1.0, 2.0]}))
    with refused("the curve", allowed=["step"]):
        find_stages(pd.DataFrame({"kl_1": [1.0, 2.0]}))
    with refused("curve") as gap:
        find_stages(pd.DataFrame({"step": [0, 1], "kl_1": [1.0, np.nan]}))
    assert names(gap.value.value, "kl_1")
    with refused("curve", "2 rows"):  # not in the order of their steps
        find_stages(pd.DataFrame({"step": [1, 0], "kl_1": [1.0, 2.0]}))
    with refused("curve") as gap:
        early_stop(pd.DataFrame({"step": [0, 1], "kl_1": [1.0, 2.0], "test_loss": [1.0, np.nan]}))
    assert names(gap.value.value, "test_loss")
    assert not names(gap.value.value, "kl_1")


def test_early_stopping_names_the_rung_it_picks():
    curve = ladder([100, 250, 300], 400).assign(test_loss=lambda t: (t["step"] - 180.0).abs() / 100 + 1)
    stop = early_stop(curve)
    assert stop.step == pytest.approx(180, abs=6)
    assert stop.rung == 1
    assert stop.gain == pytest.approx(2.2, abs=0.1)
    with refused("curve", allowed=["test_loss"]):
        early_stop(curve.drop(columns="test_loss"))
