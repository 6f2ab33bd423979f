"""The order in which `make runs` does what is left: what is named comes first, nothing is lost, tiers stay apart."""

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from unstuck.config import load_spec
from unstuck.laws.induction import published_steps
from unstuck.papers.figure import load
from unstuck.papers.lab import grid, raced
from unstuck.store.shards import copy_shards
from unstuck.store.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import results


@pytest.fixture
def figures():
    return {
        "small": grid("regression", 1, [0, 1], task__T=[16, 32]),
        "recalled": grid("recall", 2, [0], task__pairs=[4, 8]),
        "raced": raced(grid("recall", 3, [0], task__pairs=[4]), [1e-4, 1e-5]),
    }


def ids(units):
    return [spec.run_id for unit in units for spec in unit]


def test_what_is_named_comes_first_and_nothing_is_lost(figures, tmp_path):
    store = Store(tmp_path)
    one, two, three = results.in_order(figures, store)
    assert one[0][0].task.T == 32  # the longest first
    assert set(ids(one)) == {run.spec.run_id for run in figures["small"]}
    assert set(ids(three)) == {run.spec.run_id for run in figures["raced"]}
    short = figures["recalled"][0].spec
    assert ids(two)[0] != short.run_id
    first = results.in_order(figures, store, [short.run_id, "small"])
    assert ids(first[1])[0] == short.run_id
    assert ids(first[0])[:4] == [run.spec.run_id for run in figures["small"]]
    assert [set(ids(sweep)) for sweep in first] == [set(ids(sweep)) for sweep in (one, two, three)]


def test_a_figure_is_trained_as_a_whole_in_the_order_of_its_tier(tmp_path):
    """Short runs of the figure that stands first come before longer ones of the next."""
    short, long = (grid("regression", 2, [0], task__T=T) for T in ([8, 16], [64, 32]))
    (sweep,) = results.in_order({"first": short, "second": long}, Store(tmp_path))
    assert [spec.task.T for (spec,) in sweep] == [16, 8, 64, 32]
    trained = list(results.trained_figures())
    assert trained[: len(results.FIRST_IN_TIER)] == list(results.FIRST_IN_TIER)
    assert len(set(trained)) == len(trained)


def test_a_run_that_races_brings_its_rivals(figures, tmp_path):
    rival = figures["raced"][1].spec
    late = results.in_order(figures, Store(tmp_path), [rival.run_id])[-1]
    assert ids(late)[:2] == [run.spec.run_id for run in figures["raced"]]


def test_an_unknown_name_and_a_store_inside_the_checkout_are_refused(monkeypatch, figures, tmp_path):
    monkeypatch.setattr(results, "trained_figures", lambda: figures)
    inside = str(results.ROOT / "results" / "store")
    for words in (["--store", str(tmp_path), "--first", "0123456789abcdef"], [], ["--store", inside]):
        monkeypatch.setattr(sys, "argv", ["results.py", *words])
        with pytest.raises(SystemExit) as stopped:
            results.main()
        assert stopped.value.code == 2


def stored(store, run_id, state="finished", steps=10):
    directory = store.run(run_id)
    directory.path.mkdir(parents=True)
    (directory.path / "checkpoint").mkdir()
    result = {"status": "finished", "plateau_steps": None, "threshold": None, "crossings": {}, "steps": steps}
    result |= {"final": {}, "seconds": 1.0, "resumed_from": 0}
    directory.write_spec(load_spec("regression"))
    directory.write_curve(pd.DataFrame({"step": [0, steps], "test_loss": [0.5, 0.4]}))
    directory.write_status({"state": state, "step": steps} | ({"result": result} if state == "finished" else {}))
    return directory


def test_finished_runs_are_archived_and_never_for_shorter_ones(tmp_path):
    source, target = Store(tmp_path / "from"), Store(tmp_path / "to")
    stored(source, "a" * 16)
    stored(source, "b" * 16, state="stopped")
    stored(source, "c" * 16, steps=5)
    stored(target, "c" * 16, steps=50)
    stored(source, "d" * 16, steps=5)
    stored(target, "d" * 16, state="stopped", steps=20)  # longer already, with a checkpoint to go on from
    assert results.collect(source, target) == {"a" * 16}
    assert (target.path / ("d" * 16) / "checkpoint").is_dir()
    assert not (target.path / ("a" * 16)).exists()
    assert target.run("a" * 16).curve() == source.run("a" * 16).curve()
    assert not target.run("b" * 16).exists()
    assert target.run("c" * 16).status()["result"]["steps"] == 50
    assert results.collect(source, target) == set()


def test_what_was_collected_comes_back_to_the_store_that_is_trained_in(tmp_path):
    """A run that was archived, then trained for longer elsewhere: the second shard counts, the first stays."""
    training, committed = Store(tmp_path / "training"), Store(tmp_path / "committed")
    first = stored(training, "a" * 16, steps=5)
    results.collect(training, committed)
    one = set(committed.archive.iterdir())
    copy_shards(committed.archive, training.archive)
    assert results.collect(training, committed) == set()
    shutil.rmtree(first.path)
    assert training.run("a" * 16).result().steps == 5
    stored(training, "a" * 16, steps=9)
    assert results.collect(training, committed) == {"a" * 16}
    assert one < set(committed.archive.iterdir())
    assert committed.run("a" * 16).result().steps == 9


def test_a_sweep_starts_its_longest_runs_first(tmp_path, monkeypatch):
    from unstuck.runner import sweep

    specs = [run.spec for run in grid("regression", 1, [0], task__T=[4, 16, 8])]
    started = []
    monkeypatch.setattr(sweep, "work", lambda unit, *rest: started.append(unit[0].task.T) or [])
    sweep.run_sweep(specs, Store(tmp_path), workers=0)
    sweep.run_sweep(specs, Store(tmp_path), workers=0, order="given")
    assert started == [16, 8, 4, 4, 16, 8]


def test_layer_norm_and_repetition_change_what_recall_is_expected_to_take():
    """Measured: with layer norm two to three times as long, with two copies half as long."""
    from unstuck.runner.cost import predicted_cost

    def steps(**settings):
        return predicted_cost(grid("recall", 1, [0], settings)[0].spec).steps

    plain = steps()
    assert 2 < steps(**{"model.layer_norm": True}) / plain < 3
    assert steps(**{"task.B": 2.0}) == pytest.approx(plain / 2, abs=1)
    assert steps(**{"task.B": 4.0}) == steps(**{"task.B": 2.0})  # more does not help further


def test_small_checkpoints_of_long_runs_go_on_on_another_machine(figures, tmp_path, monkeypatch):
    """Kept while a figure waits for the run, dropped when it is archived; never over a run that is there."""
    here, archive, there, kept = (Store(tmp_path / name) for name in ("here", "archive", "there", "kept"))
    archive.path.mkdir()
    there.path.mkdir()
    run_id = figures["small"][0].spec.run_id
    monkeypatch.setattr(results, "LONG_SECONDS", 0)
    stored(here, run_id, state="stopped")
    checkpoint = here.run(run_id).path / "checkpoint" / "state.safetensors"
    checkpoint.write_bytes(b"x" * 100)
    (here.run(run_id).path / "predictions.safetensors").write_bytes(b"y")
    assert results.keep_checkpoints(figures, here, archive, kept.path) == {run_id}
    assert sorted(p.name for p in kept.run(run_id).path.iterdir()) == [
        "checkpoint", "curve.parquet", "spec.yaml", "status.json",
    ]  # fmt: skip
    results.use_checkpoints(kept.path, there)
    copied = there.run(run_id).path / "checkpoint" / "state.safetensors"
    assert copied.read_bytes() == checkpoint.read_bytes()
    copied.write_bytes(b"later")
    results.use_checkpoints(kept.path, there)
    assert copied.read_bytes() == b"later"
    monkeypatch.setattr(results, "LARGEST_KEPT", 10)
    assert results.keep_checkpoints(figures, here, archive, kept.path) == set()
    assert kept.run(run_id).path.exists()  # the one that was kept before still serves
    monkeypatch.setattr(results, "left", lambda runs, store: [])
    results.keep_checkpoints(figures, here, archive, kept.path)
    assert not kept.run(run_id).path.exists()


def test_a_figure_trained_in_one_go_is_left_while_its_result_has_an_earlier_budget(tmp_path, monkeypatch):
    """Its hours are those of its plan: a quarter of a second a step."""
    figure = load("gpt2-induction")
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "available", lambda: ["gpt2-induction", "fig1c"])
    hours = f"{sum(figure.STEPS['cpu'].values()) * 0.25 / 3600:.1f} hours"
    stored = {"profile": "cpu", "spec": {"SIZES": figure.SIZES, "STEPS": figure.STEPS}}
    earlier = {"profile": "cpu", "spec": {"SIZES": figure.SIZES, "STEPS": {"cpu": {figure.PLAIN: 6000}}}}
    for result, is_left in ((None, True), (stored, False), (earlier, True), ({**stored, "profile": "quick"}, False)):
        if result is not None:
            (tmp_path / "gpt2-induction.json").write_text(json.dumps(result))
        found = " ".join(results.in_one_go_lines())
        assert ("gpt2-induction" in found) == is_left
        assert (hours in found) == is_left
        assert "fig1c" not in found


def test_plain_text_is_trained_beyond_the_published_step():
    figure = load("gpt2-induction")
    assert figure.STEPS["cpu"][figure.PLAIN] > published_steps(figure.BATCH, figure.SIZES["cpu"]["context"])
    table = pd.read_csv(results.RESULTS / "gpt2-induction.csv")
    beside = next(c for c in figure.compare(table) if c.paper is not None)
    assert "11,075" in str(beside.paper)
    short = table["step"].max() < figure.STEPS["cpu"][figure.PLAIN]
    assert bool(beside.note) == (short and "not" in str(beside.ours))
