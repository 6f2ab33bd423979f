"""Forecasts: on curves made by the progress law the answer is known; on drift and silence there is none."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfinv

from amounts import examples
from refusals import names, refused, warned
from unstuck import Forecaster
from unstuck.cli import main
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.forecast import Event, ExitRule, Forecast, Outcome
from unstuck.forecast.features import HISTORY, KINDS, NAMES, Evidence, available, gain
from unstuck.forecast.model import shipped
from unstuck.forecast.notes import LossNotes, Notes
from unstuck.forecast.runs import drifting
from unstuck.forecast.sources import read_curve
from unstuck.forecast.survival import Survival
from unstuck.store.store import RunDirectory, Store
from unstuck.view.expected import expected, seconds_per_step, sentence

STORE = Path(__file__).parents[1] / "results" / "store"
#: Runs of the store, T = 64, d = 32 of regression and a recall run, with a row in which the loss still stands.
REGRESSION, RECALL = "f4ccb0e4812a3497", "2d5efb01f8d8a615"


def by_the_law(plateau, *, upto=0.98, rows=60, heads=2, noise=0.0, seed=0, loss=None):
    """A curve whose best head follows elapsed = erf(sqrt(gain)) exactly."""
    steps = np.linspace(0, upto * plateau, rows)
    rng = np.random.default_rng(seed)
    best = 0.03 * np.exp(erfinv(steps / plateau) ** 2 + noise * rng.standard_normal(rows))
    columns = {f"attn_1_{h}": np.full(rows, 0.03) for h in range(heads - 1)}
    table = pd.DataFrame({"step": steps, **columns, f"attn_1_{heads - 1}": best})
    return table if loss is None else table.assign(loss=loss)


# -- outcomes


@pytest.mark.parametrize("plateau", [3, 300, 5000, 200_000])
@pytest.mark.parametrize("elapsed", [0.5, 0.7])
@pytest.mark.parametrize("task", [None, "regression", "my_task.py"])
def test_on_the_progress_law_the_forecast_is_the_plateau(plateau, elapsed, task):
    found = Forecaster(task=task).predict(by_the_law(plateau, upto=elapsed, loss=1.0))
    assert (found.outcome, found.event, found.signal) == (Outcome.EMERGES, Event.EXIT, "attention")
    assert found.notes.signal_present
    assert found.notes.head == ("attention", 1, 1)
    assert found.step == pytest.approx(plateau, rel=0.2)
    low, high = found.interval()
    assert found.now < low < found.step < high
    assert found.elapsed == pytest.approx(found.now / found.step)
    calibration = found.to_dict()["calibration"]
    assert (calibration["signal"], calibration["digest"]) == ("attention", shipped()["attention"].of(task).digest)
    assert calibration["known_task"] is (task == "regression")
    assert calibration["alike"] is not found.notes.unlike


def test_a_task_of_the_fit_has_a_narrower_interval():
    curve = by_the_law(1000, upto=0.6)
    (low, high), (least, most) = (Forecaster(task=task).predict(curve).interval() for task in ("regression", None))
    assert least < low < high < most


def test_rows_one_at_a_time_give_the_same_as_the_curve():
    curve = by_the_law(1000, upto=0.6)
    forecaster = Forecaster()
    for row in curve.to_dict("records"):
        forecaster.update(row)
    assert forecaster.forecast() == Forecaster().predict(curve)


def test_attention_that_stands_or_wobbles_is_not_soon():
    steps = np.arange(0, 4000, 50.0)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"step": steps, "loss": 1 + 0.02 * rng.standard_normal(len(steps))})
    wobble = 0.03 * np.exp(0.01 * rng.standard_normal((len(steps), 3)))
    for heads in (np.full((len(steps), 3), 0.03), wobble, np.ones((len(steps), 1)), np.zeros((len(steps), 2))):
        found = Forecaster().predict(table.assign(**{f"attn_0_{h}": values for h, values in enumerate(heads.T)}))
        assert (found.outcome, found.now, found.step, found.interval()) == (Outcome.NOT_SOON, 3950, None, None)
        assert found.probability <= 0.1
        assert found.distribution.soon == found.probability
        assert not found.notes.signal_present


def test_heads_that_drift_seldom_get_an_end():
    """Fresh draws of the process whose other draws the model was fitted on."""
    ends = [Forecaster().predict(run.curve).outcome is Outcome.EMERGES for run in drifting(60, seed=99)]
    assert np.mean(ends) <= 0.05


def test_measurements_that_do_not_go_back_far_enough_are_too_early():
    """Attached at half of a plateau: that nothing shows yet does not mean that there is nothing."""
    steps = np.arange(5000, 9501, 250)
    curve = pd.DataFrame({"step": steps, "attn_0_0": 0.1 * np.exp((steps - 5000) / 3000)})
    found = Forecaster().predict(curve)
    assert (found.outcome, found.now, found.probability) == (Outcome.TOO_EARLY, 9500, None)
    assert found.notes.usable_from == pytest.approx(HISTORY * 5000)
    assert Forecaster().predict(curve.assign(step=steps - 4990)).notes.usable_from is None
    for first in (pd.DataFrame({"step": [s], "attn_0_0": [0.1], "loss": [1.0]}) for s in (0.0, 100.0)):
        assert Forecaster().predict(first).outcome is Outcome.TOO_EARLY


def test_of_a_loss_that_never_stood_it_is_told_what_it_does_and_one_too_short_to_tell_is_not_asked():
    curve = by_the_law(1000, upto=0.6, rows=60)
    falls = Forecaster(level=0.9).predict(curve.assign(loss=5 * np.exp(-curve["step"] / 150)))
    assert (falls.outcome, falls.signal, falls.notes.no_level) == (Outcome.FALLING, "loss", True)
    assert (falls.step, falls.probability, falls.interval(), falls.level) == (None, None, None, 0.9)
    assert falls.notes.loss.slope[2] < 0
    few = np.arange(0, 120, 10.0)  # rows that do not show whether the loss falls
    said = Forecaster().predict(pd.DataFrame({"step": few, "loss": np.where(few < 90, 1.0, 0.5), "attn_0_0": 0.02}))
    assert (said.outcome, said.notes.no_level, said.probability) == (Outcome.TOO_EARLY, True, None)
    seldom = curve.assign(loss=np.where(np.arange(60) % 29 == 0, 5 * np.exp(-curve["step"] / 150), np.nan))
    assert not Forecaster().predict(seldom).notes.no_level
    assert Forecaster().predict(seldom).outcome is Forecaster().from_attention(seldom).outcome


def ladder(rows=400):
    """Steps, and a loss that stands at 1, then at 0.5, then at 0.05."""
    steps = 10.0 * np.arange(rows)
    return steps, np.where(steps < 700, 1.0, np.where(steps < 2500, 0.5, 0.05))


@pytest.mark.parametrize(
    ("now", "outcome", "left"),
    [(650, None, None), (740, "emerged", 690), (1500, None, None), (2540, "emerged", 2490), (3990, "emerged", 2490)],
)
def test_each_exit_has_emerged_until_the_loss_stands_again(now, outcome, left):
    """At its second level the run is forecast anew; at its last one nothing is left to learn."""
    steps, losses = ladder()
    curve = pd.DataFrame({"step": steps, "loss": losses, "attn_0_0": 0.03, "attn_0_1": 0.02})
    said = Forecaster().predict(curve[curve["step"] <= now])
    if outcome is None:
        assert said.outcome in (Outcome.NOT_SOON, Outcome.NO_SIGN)
        assert said.step is None
    else:
        assert (said.outcome, said.event, said.interval(), said.probability) == (outcome, Event.EXIT, None, None)
        assert said.step == pytest.approx(left, abs=10)


def test_a_loss_that_begins_to_leave_its_second_level_has_not_emerged_again():
    _, losses = ladder(250)
    falling = np.concatenate([losses, [0.44, 0.43, 0.42]])
    curve = pd.DataFrame({"step": 10.0 * np.arange(253), "loss": falling, "attn_0_0": 0.03, "attn_0_1": 0.02})
    assert ExitRule().level(curve["step"].to_numpy(), falling) is None
    assert Forecaster().predict(curve).outcome is not Outcome.EMERGED


def test_a_loss_of_zero_has_emerged_without_a_plateau():
    found = Forecaster().predict(by_the_law(1000, upto=0.6, loss=0.0))
    assert (found.outcome, found.step) == (Outcome.EMERGED, None)


@pytest.mark.parametrize(
    ("later", "expected_divergence"), [(0.55, None), (math.nan, "not finite"), (math.inf, "not finite"), (1e6, ...)]
)
def test_attention_that_was_measured_long_ago_is_noted(later, expected_divergence):
    """A run of 500 steps with attention, and 4,000 more without."""
    seen = by_the_law(1000, upto=0.5, loss=0.55)
    after = pd.DataFrame({"step": np.arange(550, 4500, 50), "loss": later})
    said = Forecaster().predict(pd.concat([seen, after], ignore_index=True))
    assert (said.now, said.notes.last_measured) == (4450, 500)
    if expected_divergence is None:
        assert said.outcome is not Outcome.DIVERGED
        soon = pd.concat([seen, after[after["step"] < 600]], ignore_index=True)
        assert Forecaster().predict(soon).outcome is Outcome.EMERGES
    else:
        assert (said.outcome, said.step, said.probability) == (Outcome.DIVERGED, None, None)
        assert said.notes.divergence == expected_divergence or expected_divergence is ...
        assert not said.notes.signal_present


def test_a_kind_that_nothing_was_fitted_on_has_no_forecast():
    curve = by_the_law(1000, upto=0.6, loss=1.0)
    by_loss = Forecaster(models={}).predict(curve)
    assert (by_loss.outcome, by_loss.signal) == (Outcome.PLATEAU, "loss")
    found = Forecaster("attention", models={}).predict(curve)
    assert (found.outcome, found.probability, found.notes.calibrated_on) == (Outcome.NO_SIGN, None, None)
    rows = pd.DataFrame({"step": curve["step"], "row_entropy_0_0": 0.9})
    alone = Forecaster().predict(rows)
    assert (alone.outcome, alone.signal, alone.to_dict()["calibration"]) == (Outcome.NO_SIGN, "row_entropy", None)
    law = Forecaster(models={}, prior=(1000, 0.1)).predict(curve)
    assert (law.outcome, law.notes.signal_present) == (Outcome.EMERGES, False)
    assert law.step == pytest.approx(1000, rel=0.01)


def test_no_coverage_is_claimed_for_a_run_unlike_those_of_the_fit():
    """Attention that starts at a millionth and rises a hundred thousand times."""
    steps = np.arange(0, 2000, 20.0)
    heads = {f"attn_0_{h}": 1e-6 * np.exp((6 + h) * (steps / 2000) ** 2) for h in range(8)}
    found = Forecaster(horizon=1e6, models=shipped()).predict(pd.DataFrame({"step": steps, "loss": 1.0, **heads}))
    assert found.notes.unlike
    assert (found.to_dict()["calibration"]["alike"], found.to_dict()["level"]) == (False, None)
    usual = Forecast(Outcome.EMERGES, 100.0, "attention", step=200.0, distribution=Survival(100, math.log(200), 0.1, 1))
    unlike = Forecast(**{**vars(usual), "notes": Notes(unlike=True)})
    assert names(str(usual), "80%")
    assert not names(str(unlike), "80%")


def test_a_longer_horizon_states_ends_earlier():
    curve = by_the_law(6000, upto=0.33, loss=1.0)
    outcomes = [Forecaster(horizon=h).predict(curve).outcome for h in (1.2, 6)]
    assert outcomes[1] is Outcome.EMERGES is not outcomes[0]


# -- laws


def test_a_law_is_a_second_estimate_weighted_by_its_variance():
    curve = by_the_law(1000, upto=0.5, loss=1.0)
    alone, both, sure = (Forecaster(prior=p).predict(curve) for p in (None, (1500, 0.1), (1500, 0.001)))
    assert alone.step < both.step < 1500
    assert sure.step == pytest.approx(1500, rel=0.01)
    a, b = alone.distribution, both.distribution
    weight = a.spread**-2 / (a.spread**-2 + 0.1**-2)
    assert b.mean == pytest.approx(weight * a.mean + (1 - weight) * math.log(1500))
    silent = pd.DataFrame({"step": [0.0, 100.0, 200.0], "attn_0_0": 0.03})
    law_only = Forecaster(prior=(1500, 0.1)).predict(silent)  # too early for the signal
    assert law_only.step == pytest.approx(1500, rel=1e-3)
    assert (law_only.outcome, law_only.notes.signal_present) == (Outcome.EMERGES, False)
    assert law_only.to_dict()["calibration"] is None
    doubtful = Forecaster(prior=(1500, 0.1, 0.3)).predict(silent)
    assert (doubtful.outcome, doubtful.step) == (Outcome.NOT_SOON, None)


@given(st.floats(1, 1e6), st.floats(0.01, 1), st.floats(1, 1e6))
@settings(max_examples=examples(100), deadline=None)
def test_what_has_not_happened_by_now_happens_later(plateau, spread, now):
    silent = pd.DataFrame({"step": [0.0, now], "attn_0_0": 0.03})
    found = Forecaster(prior=(plateau, spread, 0.999)).predict(silent)
    overdue = math.log(now / plateau) / spread  # standard deviations
    if overdue > 2.33:
        assert (found.step, found.interval(), found.elapsed) == (None, None, None)
        assert found.notes.refuted_law == pytest.approx(plateau)
    elif overdue < 2.32:
        low, high = found.interval()
        assert now * (1 - 1e-9) <= low <= found.step <= high
        assert 0 <= found.elapsed <= 1 + 1e-9


def test_a_law_that_has_not_come_true_does_not_outweigh_a_sign():
    curve = by_the_law(2000, upto=0.5, loss=1.0)
    alone, both = Forecaster().predict(curve), Forecaster(prior=(100, 0.05)).predict(curve)
    assert (both.step, both.interval()) == (alone.step, alone.interval())
    assert both.notes.refuted_law == pytest.approx(100)


@pytest.mark.parametrize(
    "prior", [(math.inf, 1), (1500, math.inf), 1500, (1500,), (1500, 0.2, 3), (0, 1), ("x", 1), (1500, 0.2, 0)]
)
def test_a_prior_is_a_step_a_spread_and_a_probability(prior):
    with refused("prior"):
        Forecaster(prior=prior)


# -- features


@given(st.permutations(range(4)), st.sampled_from([1e-3, 0.5, 7.0, 1e4]), st.sampled_from(list(KINDS)))
@settings(max_examples=40, deadline=None)
def test_features_do_not_depend_on_the_unit_of_steps_or_the_order_of_heads(order, unit, kind):
    rng = np.random.default_rng(5)
    steps = np.arange(0, 1000, 20.0)
    columns = {
        f"{prefix}_{layer}_{head}": np.clip(0.3 + 0.05 * rng.standard_normal(50).cumsum(), 0.01, 1)
        for prefix in ("attn", "copy", "induction", "prev", "readout_entropy")
        for layer in (0, 1)
        for head in (0, 1)
    }
    curve = Curve.from_frame(pd.DataFrame({"step": steps, "loss": 1 + 0.1 * rng.standard_normal(50), **columns}))
    moved = {}
    for name in columns:
        prefix, layer, head = name.rsplit("_", 2)
        place = order[2 * int(layer) + int(head)]
        moved[f"{prefix}_{place // 2}_{place % 2}"] = columns[name]
    other = Curve.from_frame(pd.DataFrame({"step": unit * steps, "loss": curve.loss, **moved}))
    found, again = (Evidence.of(c, KINDS[kind]).features for c in (curve, other))
    assert found.shape == (len(NAMES),)
    assert again == pytest.approx(found)


def test_features_at_a_row_know_nothing_of_later_ones():
    curve = Curve.of(by_the_law(1000, rows=80, noise=0.02, loss=np.linspace(1, 0.9, 80)))
    whole = Evidence.of(curve, KINDS["attention"])
    for step in curve.steps[[3, 20, 50]]:
        cut = Evidence.of(curve.truncate(step), KINDS["attention"])
        assert whole.until(step).features.tolist() == cut.features.tolist()


def test_evidence_from_a_step_is_that_of_a_run_which_starts_there():
    curve = Curve.of(by_the_law(1000, rows=80, noise=0.02, loss=np.linspace(1, 0.9, 80)))
    begin = float(curve.steps[30])
    rest = curve.to_frame().iloc[30:].assign(step=lambda t: t["step"] - begin)
    found = Evidence.of(curve, KINDS["attention"]).from_step(begin)
    alone = Evidence.of(Curve.of(rest), KINDS["attention"])
    assert found.features == pytest.approx(alone.features)
    assert (found.now, found.usable_from) == pytest.approx((curve.steps[-1], begin + alone.usable_from))
    assert found.until(begin + 500).features == pytest.approx(alone.until(500).features)


def test_the_second_plateau_is_forecast_as_the_first_one():
    """A plateau at 1, and after its end one at 0.4 with another head that follows the progress law from there on."""
    first, second = by_the_law(1000, upto=0.98, rows=80, loss=1.0), by_the_law(4000, upto=0.6, rows=200, loss=0.4)
    first = first.rename(columns={"attn_1_1": "attn_0_0", "attn_1_0": "attn_0_1"})
    second = second.rename(columns={"attn_1_1": "attn_0_1", "attn_1_0": "attn_0_0"})
    begin = float(first["step"].iloc[-1] + 12.5)
    last = first["attn_0_0"].iloc[-1]
    both = pd.concat([first, second.assign(step=second["step"] + begin, attn_0_0=last)], ignore_index=True)
    said = Forecaster().predict(both)
    alone = Forecaster().predict(second.assign(attn_0_0=last))
    assert (said.outcome, said.notes.head) == (Outcome.EMERGES, ("attention", 0, 1))
    assert said.notes.since == pytest.approx(begin, abs=50)
    assert said.step - begin == pytest.approx(alone.step, rel=0.05)
    assert said.elapsed == pytest.approx(alone.elapsed, rel=0.05)
    assert said.soon == pytest.approx(2 * said.now - said.notes.since)
    assert said.to_dict()["counted_from"] == said.notes.since
    assert alone.notes.since is None
    late = Forecaster(prior=(1500, 0.1)).predict(both)  # a law is about the first exit
    assert (late.step, late.notes.refuted_law) == (said.step, None)


def test_the_gain_is_that_of_the_best_head_since_the_start():
    rows = {"step": [0, 10, 20], "attn_0_0": [0.1, 0.1, 0.2], "attn_0_1": [0.2, 0.1, 0.1]}
    assert gain(Curve.from_frame(pd.DataFrame(rows))) == pytest.approx([0, 0, math.log(2)])
    law = by_the_law(5000, upto=0.4)  # and a head that begins at a millionth does not hide it
    faint = law.assign(attn_0_1=np.geomspace(1e-6, 1e-4, len(law)))
    assert np.array_equal(gain(Curve.of(faint)), gain(Curve.of(law)))


def test_a_task_in_two_steps_goes_by_the_measure_that_is_ahead():
    """On the law in copying, with selection not begun, the forecast is near the plateau; by selection there is none."""
    curve = by_the_law(4000.0, upto=0.6)
    still = curve.assign(attn_1_0=0.1, attn_1_1=0.1)
    both = still.merge(curve.rename(columns=lambda c: c.replace("attn", "copy")), on="step").assign(loss=1.0)
    said = Forecaster().predict(both)
    assert (said.signal, said.outcome, said.notes.head[0]) == ("attention", Outcome.EMERGES, "copying")
    assert said.step == pytest.approx(4000, rel=0.25)
    assert Forecaster().predict(still.assign(loss=1.0)).outcome is Outcome.NOT_SOON
    as_text = both.assign(copy_1_1=both["copy_1_1"].map(str), copy_1_0=both["copy_1_0"].map(str))  # of some loggers
    assert Forecaster().predict(as_text).step == pytest.approx(said.step)


def test_copying_that_is_logged_in_other_rows_does_not_hide_attention():
    curve = by_the_law(1000, upto=0.6, rows=80, loss=1.0)
    even = np.arange(80) % 2 == 0
    apart = curve.assign(attn_1_1=curve["attn_1_1"].where(even), copy_0_0=np.where(even, np.nan, 0.03))
    assert available(Curve.of(apart)) == ["attention"]
    assert Forecaster().predict(apart).step == pytest.approx(Forecaster().predict(curve[even]).step, rel=0.02)


def test_induction_heads_have_formed_where_their_score_says_so():
    scored = by_the_law(1000, upto=0.6).rename(columns=lambda c: c.replace("attn", "induction")).assign(loss=1.0)
    unformed = Forecaster().predict(scored)
    assert unformed.signal == "loss"  # no runs were fitted on the scores
    assert unformed.notes.unformed == scored["step"].iloc[-1]
    early = Forecaster().predict(scored.assign(step=scored["step"] + 590))
    assert (early.signal, early.outcome) == ("loss", unformed.outcome)  # history of heads says nothing there
    found = Forecaster("induction").predict(scored)
    assert (found.signal, found.event) == ("induction", Event.CIRCUIT)
    formed = pd.concat([scored, scored.tail(1).assign(step=700.0, induction_1_0=0.6)])
    said = Forecaster().predict(formed)
    assert (said.outcome, said.event, said.step) == (Outcome.EMERGED, Event.CIRCUIT, 700)
    assert said.notes.unformed is None


# -- curves as people have them


def test_rows_without_attention_and_rows_in_another_order_say_nothing_new(tmp_path):
    """Loggers write the loss more often than attention."""
    whole = by_the_law(1000, upto=0.5, rows=40).astype({"step": int})
    found = Forecaster().from_attention(whole)
    losses = pd.DataFrame({"step": np.arange(0, 560, 7), "loss": 1.0})
    for mixed in (
        pd.concat([losses, whole]),
        pd.concat([whole, losses]),
        whole.merge(losses, "outer", on="step"),
        pd.concat([whole, whole[["step"]].assign(loss=1.0)]).sort_values("step", kind="stable"),
        whole.assign(attn_9_9=math.nan).iloc[::-1],
    ):
        mixed.to_csv(tmp_path / "c.csv", index=False)
        for curve in (mixed, read_curve(tmp_path / "c.csv")):
            again = Forecaster().from_attention(curve)
            assert (again.now, again.step, again.notes.head) == (found.now, pytest.approx(found.step), found.notes.head)
    with refused("the curve", allowed=["attn_L_H"]):
        Forecaster().from_attention(whole.assign(attn_1_0=math.nan, attn_1_1=math.nan))


def test_of_two_rows_of_one_step_the_last_one_counts():
    """A resumed run writes its last steps again."""
    first, again = by_the_law(1000, upto=0.6, loss=1.0), by_the_law(1000, upto=0.6, loss=1.0)
    again.loc[again.index[-1], "attn_1_1"] *= 1.5
    both = Forecaster().predict(pd.concat([first, again.tail(1)]))
    assert both.step < Forecaster().predict(first).step
    assert Curve.of(pd.concat([again.tail(1), first])).sorted().flat("attention")[-1, 1] == first["attn_1_1"].iloc[-1]


def test_rows_may_be_numpy_or_tensors_and_must_be_numbers():
    torch = pytest.importorskip("torch")
    curve = by_the_law(1000, upto=0.6).astype({"step": int})
    one = Forecaster()
    for row in curve.to_dict("records"):
        one.update({k: torch.tensor(v) if k.startswith("attn") else np.int64(v) for k, v in row.items()} | {"id": "x"})
    assert one.forecast().step == pytest.approx(Forecaster().predict(curve).step, rel=1e-3)
    for row in (
        {"attn_0_0": 1.0},
        {"step": "one", "attn_0_0": 1.0},
        {"step": 0, "attn_0_0": None},
        {"step": 0, "attn_0_0": np.zeros(3)},
    ):
        with refused("the row"):
            Forecaster().update(row)
    for name, values in (("level", (0, 1, 2, math.nan)), ("horizon", (0, 1, -2, math.nan))):
        for value in values:
            with refused(name):
                Forecaster(**{name: value})


def test_measures_in_another_unit_or_of_words_are_refused():
    entropy = pd.DataFrame({"step": [0.0, 10.0, 20.0], "readout_entropy_0_0": [3.1, 3.0, 2.9]})
    with refused("readout_entropy_0_0", "3.1"):
        Forecaster().predict(entropy)
    with pytest.raises(BadInput):
        Forecaster().predict(entropy.assign(readout_entropy_0_0=0.9, loss=["low", "high", "low"]))
    with refused("attn_0_0", "-3"):
        Forecaster().predict(pd.DataFrame({"step": [0, 10, 20], "attn_0_0": [-3.0, -2.5, -2.0]}))


@pytest.mark.skipif(not STORE.is_dir(), reason="needs the committed runs")
@pytest.mark.parametrize("run_id", [REGRESSION, RECALL])
def test_a_stored_run_leaves_its_plateau_within_the_interval(run_id):
    """The next exit, at the last row before half of the way to it at which the loss stands."""
    curve = Store(STORE).run(run_id).curve()
    left = ExitRule().exits(curve)[0]
    now = max(s for s in curve.steps if s <= 0.6 * left)
    found = Forecaster().predict(curve.truncate(now))
    assert found.outcome is Outcome.EMERGES
    low, high = found.interval()
    assert low <= left <= high
    assert Forecaster().predict(curve).outcome is Outcome.EMERGED


# -- what a forecast says


def test_every_outcome_has_the_same_keys_and_a_sentence():
    """A forecast in JSON: the keys of the contract, and those of earlier versions."""
    keys = {"outcome", "step", "interval", "probability", "event", "evidence", "calibration", "now", "signal", "sign"}
    keys |= {"elapsed", "level", "left", "over", "diverged", "tells_from", "formed", "seen", "refuted"}
    keys |= {"since", "loss", "slope", "emerged", "head", "counted_from"}
    notes = Notes(usable_from=22.0, loss=LossNotes(3, 0.5, 1.0, 0.6))
    distribution = Survival(50.0, math.log(90), 0.1, 0.9)
    for outcome in Outcome:
        for event in Event:
            said = Forecast(outcome, 50.0, "loss", event, 90.0, distribution=distribution, notes=notes)
            found = json.loads(json.dumps(said.to_dict()))
            assert set(found) == keys
            assert (found["outcome"], found["event"], found["evidence"]) == (outcome, event, str(said))
            assert (found["step"], found["interval"] is None) == ((90, False) if outcome == "emerges" else (None, True))
            assert len(found["evidence"]) > 10


def test_old_attributes_of_a_forecast_warn_and_say_the_same():
    found = Forecaster().predict(by_the_law(1000, upto=0.5))
    old = {"plateau": found.step, "low": found.interval()[0], "high": found.interval()[1], "sign": True, "over": False}
    old |= dict.fromkeys(["left", "diverged", "tells_from", "seen", "refuted"]) | {"formed": False}
    for name, value in old.items():
        with warned(FutureWarning, f"Forecast.{name}"):
            assert getattr(found, name) == value
    with pytest.raises(AttributeError):
        _ = found.platform


def test_the_zone_of_a_forecast_in_steps_and_by_the_clock():
    distribution = Survival(1000.0, math.log(2000), 0.1, 0.9)
    said = Forecast(Outcome.EMERGES, 1000.0, "attention", step=distribution.median, distribution=distribution)
    zone = expected(said, 0.5)
    assert (zone.low, zone.high, zone.step) == (*said.interval(), said.step)
    low, high = (round((end - 1000) * 0.5 / 60) for end in said.interval())
    assert names(zone.clock, f"{low} min", f"{high} min")
    assert names(zone.to_dict()["label"], f"{zone.low:,.0f}", f"{zone.high:,.0f}", zone.clock)
    assert sentence(said, 0.5).startswith(str(said))
    assert zone.clock in sentence(said, 0.5)
    assert (expected(said).clock, sentence(said)) == ("", str(said))
    for outcome in set(Outcome) - {Outcome.EMERGES}:
        assert expected(Forecast(outcome, 10.0, "loss", step=20.0, distribution=distribution), 1.0) is None


def test_the_time_of_a_step_comes_from_the_status_of_a_run(tmp_path):
    directory = RunDirectory(tmp_path)
    result = {"status": "censored", "crossings": {}, "steps": 50, "final": {}, "seconds": 5.0}
    for status, seconds in (
        ({"state": "running", "step": 40, "seconds": 20.0}, 0.5),
        ({"state": "finished", "step": 50, "result": result}, 0.1),
        ({"state": "running", "step": 0, "seconds": 0.0}, None),
        ({"state": "watched", "step": 100}, None),
    ):
        directory.write_status(status)
        assert seconds_per_step(directory) == seconds


def test_a_run_under_way_has_its_zone_in_the_command_and_the_page(tmp_path, capsys):
    """One sentence in the terminal, one zone for pages; none once the run is over."""
    from unstuck.view.expected import zone_of

    directory = RunDirectory(tmp_path / ("0" * 16))
    directory.path.mkdir()
    directory.write_curve(by_the_law(1000, upto=0.6, loss=1.0).rename(columns={"loss": "test_loss"}))
    directory.write_status({"state": "running", "step": 600, "seconds": 6000.0})
    zone = zone_of(directory)
    assert zone["low"] < zone["step"] < zone["high"]
    assert main(["forecast", str(directory.path)]) == 0
    said = capsys.readouterr().out
    assert names(said, f"{zone['low']:,.0f}", f"{zone['high']:,.0f}", "min")


def selective(z, **options):
    """A curve by the progress law whose head 1.1 has a selectivity, and the other none."""
    table = by_the_law(1000, upto=0.6, loss=1.0)
    return Forecaster(**options).predict(table.assign(selectivity_1_0=0.0, selectivity_1_1=z))


def test_attention_that_chance_may_give_states_no_end():
    """z = 3 has a tail of 0.00135, twice that for two heads; a law may still state an end."""
    found = selective(3.0)
    assert (found.outcome, found.step, found.probability, found.interval()) == (Outcome.NO_SIGN, None, None, None)
    assert found.notes.chance == pytest.approx(0.0027, rel=0.01)
    assert (found.notes.signal_present, found.notes.selective) == (False, False)
    assert selective(3.3).outcome is Outcome.EMERGES  # 0.00097
    assert selective(3.0, chance=0.003).outcome is Outcome.EMERGES
    assert selective(-2.0, chance=1).outcome is Outcome.EMERGES
    assert selective(math.nan) == Forecaster().predict(by_the_law(1000, upto=0.6, loss=1.0))
    by_law = selective(0.0, prior=(1200, 0.1))
    assert (by_law.outcome, by_law.notes.signal_present) == (Outcome.EMERGES, False)
    assert by_law.step == pytest.approx(1200, rel=0.02)


def test_attention_that_stands_is_not_soon_whatever_chance_gives():
    still = pd.DataFrame({"step": np.arange(0, 4000, 50.0), "loss": 1.0, "attn_0_0": 0.03})
    found = [Forecaster().predict(still.assign(selectivity_0_0=z)) for z in (0.5, 8.0)]
    assert [(f.outcome, f.notes.selective) for f in found] == [(Outcome.NOT_SOON, False), (Outcome.NOT_SOON, True)]
    assert len({str(f) for f in found}) == 2  # a head that attends to the targets is named


@pytest.mark.parametrize("curves", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_random_tokens_get_no_end(curves):
    """At the last step, and at each row before; seeds that no rule was chosen with."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
    from negative_controls import forecasts

    said = {seed: {f.outcome for f in forecasts(seed)} for seed in range(8000, 8000 + curves)}
    assert not [seed for seed, outcomes in said.items() if Outcome.EMERGES in outcomes]
