"""The benchmark of forecasters: who is asked what, what an entrant may see, and how answers are scored."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from refusals import names
from unstuck.cli import main
from unstuck.columns import head_columns
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.forecast import benchmark as bench
from unstuck.forecast import scoring
from unstuck.forecast.benchmark import LARGER, Benchmark, group, load_entrant
from unstuck.forecast.entrants import (
    LossLine,
    Prediction,
    PreviousToken,
    ProgressLaw,
    RunUntilNow,
    ShippedRule,
    SizesLaw,
    TwiceElapsed,
)
from unstuck.forecast.features import KINDS, Evidence
from unstuck.forecast.fitting import fold
from unstuck.forecast.prior import SizeLaw, prior_of
from unstuck.forecast.runs import DRIFT, MeasuredRun, drifting, moments
from unstuck.forecast.scoring import OTHER_NEVER, OTHER_TASK, Row, scores
from unstuck.theory import progress

ROOT = Path(__file__).parents[1]
NEVER = math.inf


def a_curve(end, last=1.2, rows=80, heads=2):
    """A loss that stands at 1 and leaves it at step `end`, with a head that obeys the law erf(√gain) = t / end."""
    gains = np.linspace(0, 3, 4000)
    steps = np.linspace(0, last * end, rows)
    gain = np.interp(steps / end, progress(gains), gains)
    loss = np.where(steps < end, 1.0, 0.05)
    columns = (
        {"step": s, "loss": x} | head_columns("attention", 0, np.array([np.exp(g) / 32] + [1 / 32] * (heads - 1)))
        for s, x, g in zip(steps, loss, gain, strict=True)
    )
    return Curve.from_rows(columns)


def a_run(d, T=16, seed=0, end=None, family="single_location", **more):
    settings = {"name": family, "d": d, "T": T, "B": 1, "p": 0.0, "seed": seed, "status": "emerged", "optim": "adam"}
    curve = a_curve(30.0 * d * math.sqrt(T) if end is None else end)
    return MeasuredRun(f"{family} {d} {T} {seed}", family, settings | more, curve)


def until(run, now):
    evidence = Evidence.of(run.curve, KINDS["attention"]).until(now)
    return RunUntilNow(run.run_id, run.family, run.settings, run.curve.truncate(now), evidence)


GRID = [a_run(d, T, seed) for d in (8, 16, 32, 64) for T in (8, 16, 32) for seed in (0, 1)]

SMALL = [run for run in GRID if run.settings["seed"] == 0]


class Spy:
    """Notes all that it is shown."""

    name = "spy"

    def __init__(self):
        self.fitted, self.asked = [], []

    def fit(self, runs):
        self.fitted.append({run.run_id for run in runs})

    def predict(self, run, curve, now):
        self.asked.append((len(self.fitted), run, curve, now))
        return Prediction(2 * now, soon=0.7)


def test_an_entrant_sees_no_later_row_no_outcome_and_no_run_of_the_size_it_is_asked_about():
    drift = list(drifting(3, 7))
    benchmark, spy = Benchmark(GRID, drift, list(drifting(2, 8))), Spy()
    answers = benchmark.answers([spy])
    assert len(spy.asked) == len(answers) > len(GRID)
    for split, run, curve, now in spy.asked:
        assert curve.steps.max() == run.curve.steps.max() == run.evidence.steps.max() == now
        assert "status" not in run.settings
        sizes = {known.size for known in GRID if known.run_id in spy.fitted[split - 1]}
        assert run.size not in sizes
        assert run.family != DRIFT or run.run_id not in spy.fitted[split - 1]
    assert set(answers["run_id"]) == {run.run_id for run in [*GRID, *drift]}
    larger = answers[answers["group"] == LARGER]
    assert larger.empty  # none of these runs has the standard model
    assert all(fold(run.size) != i for i, known in enumerate(spy.fitted[:6]) for run in GRID if run.run_id in known)


def test_larger_sizes_are_forecast_from_smaller_ones_alone():
    standard = {"layers": 2, "heads": 4, "qk": 64, "layer_norm": False, "batch": 32, "lr": 1e-4}
    runs = [a_run(d, **standard) for d in (8, 16, 32, 64, 128)]
    spy = Spy()
    answers = Benchmark(runs, [], []).answers([spy])
    assert set(answers.loc[answers["group"] == LARGER, "run_id"]) == {runs[3].run_id, runs[4].run_id}
    assert spy.fitted[-2] == {run.run_id for run in runs[:3]}


def test_of_a_task_left_out_an_entrant_is_told_nothing():
    others = [replace(run, run_id=f"recall {run.run_id}", family="recall, layer norm") for run in SMALL]
    drift, spy = list(drifting(3, 7)), Spy()
    answers = Benchmark([*SMALL, *others], drift, list(drifting(2, 8))).answers([spy])
    task_of = {run.run_id: run.task for run in [*SMALL, *others]}
    untold = [(split, run) for split, run, _, _ in spy.asked if not run.family]
    assert {run.run_id for _, run in untold} >= set(task_of)
    for split, run in untold:
        assert run.settings == {}
        known = spy.fitted[split - 1]
        assert not any(task_of.get(name) == task_of.get(run.run_id, "") for name in known)
    for name, wanted in ((OTHER_TASK, set(task_of)), (OTHER_NEVER, {run.run_id for run in drift})):
        assert set(answers.loc[answers["group"] == name, "run_id"]) == wanted


def test_moments_lie_before_the_event_and_their_digest_names_them():
    benchmark = Benchmark(GRID[:4], [], [])
    moments = benchmark.moments.dropna()  # without those at the level after the exit, which is not left
    ends = {run.run_id: 30 * run.settings["d"] * math.sqrt(run.settings["T"]) for run in GRID}
    assert (moments["step"] < moments["event"]).all()
    assert moments["event"].to_numpy() == pytest.approx(moments["run_id"].map(ends).to_numpy(), rel=0.03)
    assert benchmark.digest == Benchmark(GRID[:4][::-1], [], []).digest
    assert benchmark.digest != Benchmark(GRID[:3], [], []).digest


def test_moments_after_an_exit_count_from_the_new_level():
    """A run that does twice what another one does once, at half of its loss."""
    once = a_curve(2000.0, last=1.2, rows=160).to_frame()
    again = once.assign(step=once["step"] + 2400.0 + once["step"][1], test_loss=once["loss"] * 0.05)
    twice = pd.concat([once.assign(test_loss=once["loss"]), again], ignore_index=True).drop(columns="loss")
    runs = [MeasuredRun("x", "single_location", {}, Curve.from_frame(t, "run")) for t in (again, twice)]
    late = [m for m in moments(runs[1], KINDS["attention"]) if m.evidence.since > 2000]
    assert late
    assert {m.evidence.since for m in late} <= set(once["step"][once["step"] >= 2000]) | {2400.0}
    for m in late:
        assert m.evidence.now == m.step
        assert m.evidence.steps[0] >= m.evidence.since


def test_groups_of_runs():
    assert group(a_run(8)) == "regression"
    assert group(a_run(8, optim="sgd")) == "regression, SGD"
    assert group(a_run(8, family="single_location, layer norm")) == "regression, layer norm"
    assert group(a_run(8, family="recall, repeated")) == "recall, p > 0"
    assert group(a_run(8, family="mqar, layer norm")) == group(a_run(8, family="induction_heads, layer norm"))


# -- entrants


def test_rules_of_thumb():
    run = a_run(16)
    now = float(run.curve.steps[40])
    seen = until(run, now)
    assert TwiceElapsed().predict(seen, seen.curve, now).median == 2 * now
    end = 30 * 16 * 4
    assert ProgressLaw().predict(seen, seen.curve, now).median == pytest.approx(end, rel=0.02)
    rising = Curve.from_rows({"step": s, "loss": 1 + s / 1000} for s in range(0, 101, 5))
    assert math.isnan(LossLine().predict(seen, rising, 100).median)
    falling = Curve.from_rows({"step": s, "loss": 1 - s / 1000} for s in range(0, 101, 5))
    level = 1 - np.median([s / 1000 for s in range(0, 101, 5) if s >= 200 / 3])
    assert LossLine().predict(seen, falling, 100).median == pytest.approx(1000 * (1 - 0.8 * level))


def test_the_previous_token_rule_takes_the_first_layer_and_the_first_passing():
    rows = [
        {"step": s, "previous_token_0_0": 0.001 * s, "previous_token_1_0": 0.9, "loss": 1.0} for s in range(0, 300, 10)
    ]
    rule, curve = PreviousToken(), Curve.from_rows(rows)
    assert rule.predict(None, curve.truncate(120), 120).median == pytest.approx(1.19 * 110)
    assert math.isnan(rule.predict(None, curve.truncate(90), 90).median)
    assert math.isnan(rule.predict(None, a_curve(100), 50).median)


def test_a_law_of_sizes_predicts_the_first_exit_of_another_size():
    law, run = SizesLaw(), a_run(24, 16)
    law.fit(GRID)
    seen = until(run, 200.0)
    said = law.predict(seen, seen.curve, 200.0)
    end = 30 * 24 * 4
    assert said.median == pytest.approx(end, rel=0.05)
    assert said.low < said.median < said.high
    assert 0 <= said.soon < 0.05
    refuted = law.predict(seen, seen.curve, 2.0 * end)
    assert math.isnan(refuted.median)
    other = until(a_run(24, family="mqar"), 200.0)
    assert math.isnan(law.predict(other, other.curve, 200.0).median)  # a family without a formula


def test_answers_of_the_rule_shipped_before_come_from_their_table(tmp_path):
    table = tmp_path / "shipped.csv"
    table.write_text("# of a commit\nrun_id,step,median,low,high,soon,signal\n12e4,80,200,150,300,0.1,gain\n")
    run = MeasuredRun("12e4", "single_location", {}, a_curve(100))
    assert ShippedRule(table).predict(run, run.curve, 80.0) == Prediction(200, 150, 300, 0.1)
    assert math.isnan(ShippedRule(table).predict(run, run.curve, 81.0).median)
    assert math.isnan(ShippedRule(tmp_path / "none.csv").predict(run, run.curve, 80.0).median)


def test_the_committed_table_names_its_commit_and_is_small():
    file = ROOT / "results" / bench.SHIPPED
    first = file.read_text().splitlines()[0]
    assert re.fullmatch(r"# .*commit [0-9a-f]{7}, .*version \d+, digest [0-9a-f]{12}", first)
    assert file.stat().st_size < 2e6


# -- the law as a prior


def test_a_prior_speaks_of_first_exits_and_of_how_many_runs_have_one():
    curves = {run.run_id: run.curve for run in GRID}
    never = [a_run(d, 16, seed=9) for d in (8, 16)]
    curves |= {run.run_id: run.curve.truncate(100) for run in never}
    rows = [run.settings | {"run_id": run.run_id, "task": "single_location"} for run in [*GRID, *never]]
    table = pd.DataFrame(rows).drop(columns="name").assign(plateau_steps=5.0 * 10**6, steps=10**7)
    mine = {**table.iloc[0].to_dict(), "d": 24, "T": 16, "seed": 5}
    step, spread, probability, beyond = prior_of(mine, table, None, curves.get)
    assert step == pytest.approx(30 * 24 * 4, rel=0.05)  # not the 5,000,000 steps of the threshold
    assert 0 < spread < 0.2
    assert not beyond
    assert probability == pytest.approx((len(GRID) + 1) / (len(GRID) + 2 + 2))


def test_a_law_without_censored_runs_is_almost_certain_of_the_event():
    table = pd.DataFrame({"T": [8, 16, 32, 64], "plateau_steps": [80.0, 161, 320, 645], "status": "emerged"})
    assert SizeLaw.fit(table, "T").predict({"T": 16})[2] == pytest.approx(5 / 6)


# -- scores


def answers(rows, entrant="e", name="g", since=0.0):
    """A table of answers: run, step, event, last, median, low, high, soon."""
    columns = ["run_id", "step", "event", "last", "median", "low", "high", "soon"]
    about = {"entrant": entrant, "group": name, "setting": "s", "since": since, "unlike": math.nan}
    return pd.DataFrame(rows, columns=columns).assign(**about)


def test_every_run_has_one_vote():
    nan = math.nan
    many = [("a", 40.0, 100.0, 200.0, 110.0, 90.0, 120.0, 0.2)] * 9  # 10% off, and held
    few = [("b", 40.0, 100.0, 200.0, 150.0, 120.0, 180.0, 0.2)]  # 50% off, and not held
    silent = [("c", 40.0, 100.0, 200.0, nan, nan, nan, 0.2)]
    row = Row("e", scores(answers(many + few + silent)))
    assert row.value("g", "error", "30-50%") == pytest.approx(0.3)
    assert row.value("g", "error of all", "30-50%") == pytest.approx(0.25)  # silence: 80, off by 25%
    assert row.value("g", "coverage") == pytest.approx(0.5)
    assert row.value("g", "answered", "30-50%") == pytest.approx(2 / 3)
    assert row.runs("g", "answered", "30-50%") == 3
    assert math.isnan(row.value("g", "error", "0-15%"))


def test_coverage_is_grouped_by_what_was_stated():
    row = Row("e", scores(answers([("a", 40.0, 400.0, 500.0, 50.0, 45.0, 60.0, 0.9)])))
    assert row.value("g", "coverage", "70-100%") == 0.0  # it stated 80%; it was at 10%
    assert math.isnan(row.value("g", "coverage", "0-15%"))
    assert row.value("g", "error", "0-15%") == pytest.approx(7.0)


def test_pinball_loss_of_known_quantiles():
    row = Row("e", scores(answers([("a", 40.0, 100.0, 500.0, 100.0, 50.0, 400.0, 0.9)])))
    assert row.value("g", "pinball", "30-50%") == pytest.approx((0.1 * math.log(2) + 0 + 0.1 * math.log(4)) / 3)


def test_alarms_lead_and_reliability():
    nan = math.nan
    rows = [("a", s, 100.0, 200.0, nan, nan, nan, p) for s, p in ((20.0, 0.05), (40.0, 0.45), (60.0, 0.95))]
    row = Row("e", scores(answers(rows)))
    assert row.value("g", "lead") == pytest.approx(0.4)
    assert row.value("g", "happened", "0%-10%") == 0.0
    assert row.value("g", "happened", "40%-50%") == 0.0
    assert row.value("g", "happened", "90%-100%") == 1.0
    unknown = answers([("a", 150.0, nan, 200.0, nan, nan, nan, 0.95)])  # stopped before twice the step
    assert math.isnan(Row("e", scores(unknown)).value("g", "happened", "90%-100%"))
    never = [(run, 50.0, nan, NEVER, nan, nan, nan, p) for run, p in (("x", 0.6), ("y", 0.4), ("z", 0.1), ("w", 0.2))]
    row = Row("e", scores(answers([*never, ("w", 60.0, nan, NEVER, 90.0, 80.0, 100.0, 0.3)])))
    assert (row.value("g", "alarm"), row.value("g", "end named")) == (0.25, 0.25)
    near = answers([("x", 50.0, nan, NEVER, 99.0, nan, nan, nan), ("y", 50.0, nan, NEVER, 101.0, nan, nan, nan)])
    assert Row("e", scores(near)).value("g", "alarm") == 0.5  # without a probability, a step that near is an alarm


def test_after_an_exit_scores_count_steps_from_the_new_level():
    """The same answers 1,000 steps later, at a level that began there."""
    nan = math.nan
    rows = [("a", 40.0, 100.0, 500.0, 110.0, 90.0, 120.0, 0.9), ("a", 70.0, nan, 80.0, nan, nan, nan, 0.2)]
    later = [(run, *(1000 + x for x in steps), soon) for run, *steps, soon in rows]
    found, again = scores(answers(rows)), scores(answers(later, since=1000.0))
    again = again[again["part"] != scoring.LATER].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, again)


def test_a_run_that_cannot_emerge_again_is_judged_after_its_exit():
    nan = math.nan
    before = ("a", 40.0, 100.0, NEVER, 110.0, 90.0, 120.0, 0.9)
    quiet, alarm = (("a", 200.0, nan, NEVER, nan, nan, nan, p) for p in (0.1, 0.9))
    assert [Row("e", scores(answers([before, at]))).value("g", "alarm") for at in (quiet, alarm)] == [0.0, 1.0]


def test_moments_after_an_exit_have_scores_of_their_own():
    nan = math.nan
    early = answers([("a", 40.0, 100.0, 500.0, 110.0, 90.0, 120.0, 0.9), ("b", 40.0, nan, NEVER, nan, nan, nan, 0.9)])
    late = answers([("a", 240.0, 300.0, 500.0, 350.0, 320.0, 360.0, 0.9), ("b", 240.0, nan, NEVER, 300, 280, 320, 0.1)])
    table = pd.concat([early, late.assign(since=200.0)])
    learns, never = (Row("e", scores(table[table["run_id"] == run])) for run in "ab")
    part = "after an exit"
    assert [learns.value("g", "error", p) for p in ("30-50%", part)] == pytest.approx([math.sqrt(1.1 * 1.5) - 1, 0.5])
    assert [learns.value("g", "coverage", p) for p in (scoring.ALL, part)] == [0.5, 0.0]
    assert [never.value("g", "alarm", p) for p in (scoring.ALL, part)] == [1.0, 0.0]
    assert [never.value("g", "end named", p) for p in (scoring.ALL, part)] == [1.0, 1.0]


def test_rank_correlation_is_spearmans_over_runs_of_one_setting():
    rng = np.random.default_rng(3)
    events = rng.uniform(100, 200, 12)
    said = events * rng.lognormal(0, 0.2, 12)
    rows = [(str(i), 80.0, e, 300.0, m, m, m, 0.8) for i, (e, m) in enumerate(zip(events, said, strict=True))]
    found = Row("e", scores(answers(rows)))
    assert found.value("g", "rank correlation", "setting 1") == pytest.approx(spearmanr(events, said).statistic)
    assert math.isnan(Row("e", scores(answers(rows[:7]))).value("g", "rank correlation", "setting 1"))


def test_two_entrants_are_ranked_at_the_moment_when_one_of_them_first_answers():
    """`ours` ranks all events rightly at that moment, and wrongly before; `rule` is right in one setting of two."""
    rng, nan = np.random.default_rng(1), math.nan
    parts = []
    for setting in ("a", "b"):
        events = rng.permutation(np.linspace(100, 200, 10))
        for i, event in enumerate(events):
            run, wrong = f"{setting}{i}", 1e4 - event
            ours = [(run, 40.0, event, 300.0, wrong, nan, nan, nan), (run, 60.0, event, 300.0, event, nan, nan, nan)]
            early = (run, 40.0, event, 300.0, nan, nan, nan, nan)
            rule = [early, (run, 60.0, event, 300.0, event if setting == "a" else wrong, nan, nan, nan)]
            parts += [answers(ours, "ours").assign(setting=setting), answers(rule, "rule").assign(setting=setting)]
    table = pd.concat(parts, ignore_index=True)
    mine, theirs, difference = scoring.paired_ranks(table, "ours", "rule")
    assert (mine.value, theirs.value, difference.value, mine.runs) == pytest.approx((1, 0, 1, 20))
    assert (mine.low, mine.high, difference.low) == pytest.approx((1, 1, 1))
    silent = table.assign(median=table["median"].where((table["entrant"] == "rule") | (table["step"] < 60)))
    assert math.isnan(scoring.paired_ranks(silent, "ours", "rule")[0].value)  # all say twice the same step


def test_the_bootstrap_resamples_runs():
    """For a share of one half in n runs, resampled over runs, the 95% interval is about 1/√n to either side, however
    many moments each run has."""
    rows = [
        (str(i), 40.0, 100.0, 200.0, 100.0, 90.0, 110.0 if i % 2 else 99.0, 0.2) for i in range(100) for _ in range(20)
    ]
    found = scores(answers(rows))
    held = found[(found["measure"] == "coverage") & (found["part"] == scoring.ALL) & (found["group"] == "g")].iloc[0]
    assert held["value"] == 0.5
    assert (held["high"] - held["low"]) / 2 == pytest.approx(0.1, rel=0.3)


# -- the command, and the example of the docs


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A benchmark of few runs in place of a store."""
    monkeypatch.setattr(bench, "finished_runs", lambda store: iter(SMALL))
    monkeypatch.setattr(scoring, "RESAMPLES", 20)
    monkeypatch.setattr(bench, "DRIFT_JUDGED", (4, 2))
    monkeypatch.setattr(bench, "DRIFT_FITTED", (4, 1))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()
    return tmp_path


def example():
    """The forecaster that docs/own-forecaster.md shows."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "own-forecaster.md").read_text(), re.DOTALL)
    return code


def test_the_forecaster_of_the_docs_enters_with_twenty_lines(small, capsys):
    code = example()
    (body,) = re.findall(r"^class .*", code, re.MULTILINE | re.DOTALL)
    assert len([line for line in body.splitlines() if line.strip()]) <= 20
    (small / "my_forecaster.py").write_text(code)
    assert main(["bench", "forecast", "--store", "store", "--entrant", "my_forecaster:Doubled", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["runs"] == len(SMALL) + 4
    assert len(said["entrants"]) == 9
    found = pd.concat([pd.DataFrame(entry["scores"]).assign(entrant=entry["name"]) for entry in said["entrants"]])
    mine = Row("attention doubled", found)
    assert mine.value("regression", "error", "from 30%") < 0.05  # these heads all obey one law
    twice = Row("twice elapsed", found)
    assert twice.value("drift", "alarm") == 1.0
    assert mine.value("regression", "answered", "50-70%") == 0.0  # attention has doubled at erf(√log 2) = 76%
    assert mine.value("regression", "answered", "70-100%") > 0.3


def test_the_command_prints_a_row_for_each_entrant(small, capsys, monkeypatch):
    monkeypatch.setattr(bench, "entrants", lambda table: [TwiceElapsed(), LossLine()])
    assert main(["bench", "forecast", "--store", "store"]) == 0
    shown = capsys.readouterr().out
    assert "twice elapsed" in shown
    assert "loss extrapolation" in shown


@pytest.mark.parametrize("name", ["nowhere:Class", "math:Class", "math", "math:pi", "fractions:Fraction"])
def test_what_is_no_entrant_is_refused(name):
    with pytest.raises(BadInput) as refused:
        load_entrant(name)
    assert refused.value.field == "--entrant"


def test_wrong_words_are_refused(tmp_path, capsys):
    assert main(["bench", "forecast", "--store", str(tmp_path / "none")]) == 2
    assert names(capsys.readouterr().err, "--store")
    assert main(["bench"]) == 2
    assert main(["bench", "nothing"]) == 2


def test_an_answer_that_is_no_prediction_is_refused():
    class Wrong(TwiceElapsed):
        def predict(self, run, curve, now):
            return "soon"

    with pytest.raises(BadInput):
        Benchmark(GRID[:1], [], []).answers([Wrong()])
