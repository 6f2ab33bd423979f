"""The fresh runs and their registration: what is listed, what is refused, and how answers are scored."""

import json
import math
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest

from refusals import refused
from unstuck.forecast.model import shipped
from unstuck.forecast.runs import CONTROL, MeasuredRun
from unstuck.forecast.scoring import ALL
from unstuck.runner.cost import predicted_cost

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import fresh_runs
import registered

from test_benchmark import a_curve, a_run


@pytest.fixture(scope="module")
def groups():
    return fresh_runs.fresh_runs()


@pytest.fixture(scope="module")
def now():
    return registered.Registration.of_now()


def test_as_many_fresh_runs_as_are_asked_for_and_none_too_long(groups):
    assert {name: len(runs) for name, runs in groups.items()} == {
        "regression": 60,
        "regression, larger sizes": 20,
        "regression, p > 0": 20,
        "recall": 16,
        "recall, layer norm": 8,
        "MQAR, layer norm": 8,
        "text": 20,
        fresh_runs.NEVER: 60,
    }
    hours = [predicted_cost(run.spec).seconds / 3600 for runs in groups.values() for run in runs]
    assert max(hours) <= fresh_runs.LONGEST
    assert 30 < sum(hours) < 36
    pd.testing.assert_frame_equal(registered.listed(), pd.read_csv(registered.LISTED))


def test_no_fresh_run_is_in_the_store(groups):
    ids = [run.spec.run_id for runs in groups.values() for run in runs]
    assert len(set(ids)) == len(ids)
    there = registered.stored_ids()
    assert len(there) > 500
    assert not there & set(ids)
    first = registered.freezes(registered.FILE)[:1]  # of runs that are registered, the same list
    assert all({run["id"] for run in frozen.runs} == set(ids) for frozen in first)


def test_sizes_are_those_of_the_store_and_larger_ones_are_not(groups):
    table = registered.Store(registered.results.STORE).table()
    keys = ["T", "d", "B", "p"]
    known = set(table[table["task"].isin(["regression", "single_location"])][keys].itertuples(index=False, name=None))
    sizes = {
        name: {tuple(float(getattr(r.spec.task, k)) for k in keys) for r in groups[name]} for name in list(groups)[:3]
    }
    assert sizes["regression"] | sizes["regression, p > 0"] <= known
    assert not sizes["regression, larger sizes"] & known


def test_text_settings_are_those_of_no_figure(groups):
    def setting(spec):
        return json.dumps([asdict(spec.task), asdict(spec.model), spec.train.batch], sort_keys=True)

    used = {setting(run.spec) for name in registered.results.trained_figures() for run in _text_runs(name)}
    mine = {setting(run.spec) for run in groups["text"]}
    assert used
    assert len(mine) == 2
    assert not used & mine


def _text_runs(name):
    return [run for run in registered.results.load(name).runs("cpu") if run.spec.task_name == "text"]


# -- the registration


def test_a_freeze_is_read_as_it_was_written_and_only_one_is_made(now, tmp_path, monkeypatch):
    file = tmp_path / "registration.json"
    monkeypatch.setattr(registered.Registration, "of_now", lambda: replace(now, commit="0123456789ab"))
    monkeypatch.setattr(registered, "shipped", lambda: dict.fromkeys(["attention", "induction"]))
    made = registered.freeze(file)
    assert registered.freezes(file) == [made]
    assert registered.registered(file) == made
    assert len(made.runs) == 212
    with refused("the registration"):
        registered.freeze(file)


def test_nothing_is_frozen_without_a_model_of_text_or_with_local_changes(now, tmp_path, monkeypatch):
    file = tmp_path / "registration.json"
    changed = replace(now, commit="0123456789ab with local changes")
    monkeypatch.setattr(registered.Registration, "of_now", lambda: changed)
    monkeypatch.setattr(registered, "shipped", lambda: {"attention": None})
    with refused("the models"):
        registered.freeze(file)
    monkeypatch.setattr(registered, "shipped", lambda: dict.fromkeys(["attention", "induction"]))
    with refused("the commit"):
        registered.freeze(file)
    monkeypatch.setattr(registered, "stored_ids", lambda: {now.runs[0]["id"]})
    with refused("the fresh runs", now.runs[0]["id"]):
        registered.freeze(file)
    assert not file.exists()


@pytest.mark.parametrize("field", ["models", "code", "moments", "scorer", "law", "excluded", "random_tokens", "runs"])
def test_what_differs_from_the_freeze_is_refused(now, field, tmp_path, monkeypatch):
    file = tmp_path / "registration.json"
    file.write_text(json.dumps([asdict(replace(now, **{field: "another"}))]))
    monkeypatch.setattr(registered.Registration, "of_now", lambda: replace(now, commit="later", date="later"))
    with refused("what is frozen", field):
        registered.registered(file)
    with refused("what is frozen", field):
        registered.score(None, file, tmp_path / "registered.csv")


def test_fresh_runs_are_scored_once_and_all_together(now, tmp_path, monkeypatch):
    file, out = tmp_path / "registration.json", tmp_path / "registered.csv"
    with refused("the registration"):
        registered.score(None, file, out)
    file.write_text(json.dumps([asdict(now)]))
    monkeypatch.setattr(registered.Registration, "of_now", lambda: now)
    with refused("the fresh runs", "212 unfinished"):
        registered.score(registered.Store(tmp_path / "store"), file, out)
    out.write_text("a table")
    with refused("the table"):
        registered.score(registered.Store(tmp_path / "store"), file, out)


# -- the scores


def test_the_frozen_model_answers_in_the_registered_groups_and_learns_nothing():
    runs = [a_run(d, 32, seed) for d in (16, 32) for seed in (0, 1)]
    flat = a_curve(1000.0).truncate(900).to_frame()
    heads = [c for c in flat if c.startswith("attention") or c.startswith("attn")]
    flat[heads] = flat[heads].iloc[0].to_numpy()
    still = MeasuredRun("still", "single_location", {"seed": 0}, type(runs[0].curve).from_frame(flat, "run"))
    groups = {run.run_id: "recall" for run in runs} | {"still": fresh_runs.NEVER}
    said = registered.answers([*runs, still], [a_run(d, 16, 5) for d in (8, 16, 32)], groups)
    mine = said[said["entrant"] == registered.MODEL]
    assert set(mine["group"]) == {"recall", fresh_runs.NEVER}
    assert mine.loc[mine["run_id"] == "still", "last"].tolist() == [math.inf] * (mine["run_id"] == "still").sum()
    ends = mine[mine["group"] == "recall"].dropna(subset=["median", "event"])
    error = (ends["median"] / ends["event"] - 1).abs()
    assert error.median() < 0.1  # these heads obey the progress law
    model = registered.FrozenModel("frozen")
    model.fit(runs)
    assert all(model.models(name, "recall") is found for name, found in shipped().items())
    assert CONTROL not in groups.values()


def answers(entrant, name, runs, error, soon=0.5, half=0.5, unlike=0.0):
    """One answer of each run at step 55, its event at step 100."""
    median = 100 * (1 + error)
    row = {"entrant": entrant, "group": name, "setting": name, "since": 0.0, "step": 55.0, "event": 100.0}
    row |= {"last": 200.0, "median": median, "low": median * (1 - half), "high": median * (1 + half)}
    row |= {"soon": soon, "unlike": unlike}
    return pd.DataFrame([row | {"run_id": f"{name} {i}"} for i in range(runs)])


def test_the_lines_of_the_table_and_their_verdicts():
    never = answers(registered.MODEL, fresh_runs.NEVER, 60, 0.0, soon=0.1).assign(event=math.nan, last=math.inf)
    never.loc[never.index[:2], "soon"] = 0.9  # 2 alarms of 60
    never[["median", "low", "high"]] = math.nan
    said = [
        answers(registered.MODEL, "regression", 60, 0.05, soon=0.95),
        answers(registered.MODEL, "regression, p > 0", 20, 0.2, half=0.01),
        answers(registered.MODEL, "recall, layer norm", 8, 0.1, unlike=1.0),
        never,
    ]
    found = registered.table(pd.concat(said, ignore_index=True), random_tokens=3)
    lines = found.dropna(subset=["line"]).set_index("line")
    assert lines.loc["regression: error from 30%", ["value", "met"]].tolist() == [pytest.approx(0.05), "yes"]
    assert lines.loc["regression: 80% interval holds", ["value", "met"]].tolist() == [1.0, "no"]  # above 90%
    assert lines.loc["p > 0: error from 30%", "met"] == "no"
    assert lines.loc["regression, p > 0: 80% interval holds", ["value", "met"]].tolist() == [0.0, "no verdict"]
    assert lines.loc["recall, layer norm: said to be unlike", "value"] == 1.0
    assert lines.loc["cannot emerge: alarms", ["value", "met"]].tolist() == [pytest.approx(2 / 60), "no"]
    assert lines.loc["cannot emerge: ends named", ["value", "met"]].tolist() == [0.0, "yes"]
    assert lines.loc["happened where more than 90% was stated", ["value", "met"]].tolist() == [
        pytest.approx(60 / 62),
        "yes",
    ]
    assert lines.loc["random tokens: curves with an end", ["value", "met"]].tolist() == [3.0, "no"]
    assert lines.loc["recall: error from a third", "met"] == "no verdict"  # no such run
    assert set(found.loc[found["line"].isna(), "group"]) >= {"regression", ALL}
