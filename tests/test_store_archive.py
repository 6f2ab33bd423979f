"""The archive of a store: runs come back to the bit, a longer run never loses the archived one, damage is named."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refusals import names, warned
from stores import a_store
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.runner.execute import execute
from unstuck.runner.sweep import run_sweep
from unstuck.store.archive import archived_runs
from unstuck.store.shards import archive_runs, copy_shards, merge_shards
from unstuck.store.store import Damaged, Store

TINY = [
    *("task.T=6", "task.d=2", "model.width=8", "model.heads=1", "model.qk=4", "optim.lr=1e-3"),
    *("train.thresholds=1e-9", "train.max_steps=6", "train.probe_every=2"),
]
BIG = 2**53 + 1  # no double holds it
ODD = {
    "a": pd.DataFrame({"step": [0, 1, 2], "test_loss": [-0.0, np.nan, np.inf], "count": [BIG, 2, 3]}),
    "b": pd.DataFrame({"count": [1, BIG], "flag": [True, False], "step": [5, 7], "half": np.float32([0.1, 0.2])}),
    "c": pd.DataFrame({"step": [0.0, 1.5], "test_loss": [1e-300, -np.inf]}),  # `step` has another type
    "d": pd.DataFrame({"step": [3], "word": ["high"], "größe µ": [0.1 + 0.2]}),
    "e": pd.DataFrame({"step": np.arange(20_000), "test_loss": np.random.default_rng(0).standard_normal(20_000)}),
}


def tiny(*words):
    return load_spec("regression", [*TINY, *words])


def odd_store(path):
    """Finished runs with curves that no loop would write, and texts that a careless reader would change."""
    a_store(path, len(ODD))
    for directory, (name, frame) in zip(list(Store(path)), ODD.items(), strict=True):
        frame.to_parquet(directory.path / "curve.parquet", index=False)
        (directory.path / "spec.yaml").write_bytes((directory.path / "spec.yaml").read_bytes() + "\r\n# µ\n".encode())
        directory.path.rename(path / name)
    maps = pd.DataFrame({k: [1] * 4 for k in ("step", "layer", "head")} | {"row": [0, 0, 1, 1], "column": [0, 1, 0, 1]})
    maps["weight"] = [0.25, np.nan, 0.1 + 0.2, -0.0]
    maps.to_parquet(path / "b" / "maps.parquet", index=False)
    return Store(path)


def archived(store, names=None):
    """Move runs of a store into its archive."""
    live = [run.path for run in store if run.path.is_dir()]
    directories = live if names is None else [path for path in live if path.name in names]
    done = archive_runs(directories, store.archive)
    for directory in directories:
        if directory.name in done:
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()
    return done


def bits(frame):
    columns = [(c, str(frame[c].dtype), frame[c].to_numpy()) for c in frame]
    return [(c, kind, list(x) if x.dtype == object else x.tobytes()) for c, kind, x in columns], list(frame.index)


def content(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_runs_with_odd_columns_come_back_to_the_bit(tmp_path):
    store = odd_store(tmp_path)
    raw = {n: {p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ODD}
    frames = {n: pd.read_parquet(tmp_path / n / "curve.parquet") for n in ODD}
    table = store.table()
    read = {run.path.name: (run.curve(), run.maps(), run.result(), run.spec(), run.status()) for run in store}
    assert archived(store) == set(ODD)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    runs = archived_runs(store.archive)
    for name, frame in frames.items():
        assert bits(runs[name].rows("curves").to_pandas()) == bits(frame)
        assert runs[name].spec_text.encode() == raw[name]["spec.yaml"]
        assert runs[name].status_text.encode() == raw[name]["status.json"]
        run = store.run(name)
        curve, maps, *rest = read[name]
        assert run.has_curve()
        assert bits(run.curve().to_frame()) == bits(curve.to_frame())
        assert [run.result(), run.spec(), run.status()] == rest
        assert (run.maps() is None) == (maps is None)
    assert bits(store.run("b").maps()) == bits(read["b"][1])
    assert [run.path.name for run in store] == sorted(ODD)
    pd.testing.assert_frame_equal(store.table(), table, check_exact=True)


def test_a_run_is_read_from_its_row_group_alone(tmp_path):
    store = odd_store(tmp_path)
    archived(store)
    path = next(p for p in store.archive.glob("*.curves.parquet") if pq.ParquetFile(p).num_row_groups > 1)
    groups = [set(pq.ParquetFile(path).read_row_group(i)["run_id"].to_pylist()) for i in range(2)]
    assert groups == [{"a", "b", "d"}, {"e"}]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"step": [0], "run_id": ["x"]}),
        pd.DataFrame({"step": [0, 1]}, index=[5, 6]),
        pd.DataFrame({"step": pd.array([0, None], dtype="Int64")}),
        pd.DataFrame({"step": []}),
    ],
)
def test_what_a_shard_cannot_hold_stays_where_it_is(tmp_path, frame):
    store = Store(a_store(tmp_path, 2))
    first, second = store
    frame.to_parquet(first.path / "curve.parquet")
    with warned(Damaged, first.path.name):
        assert archived(store) == {second.path.name}
    assert first.status()["state"] == "finished"
    assert len(store.table()) == 2


def test_a_run_that_has_not_ended_is_not_archived(tmp_path):
    store = Store(a_store(tmp_path, 1))
    (run,) = store
    run.write_status(run.status() | {"state": "running"})
    with warned(Damaged, run.path.name):
        assert archived(store) == set()


def test_a_new_batch_leaves_the_old_shards_alone_and_merging_loses_nothing(tmp_path):
    store = odd_store(tmp_path)
    archived(store, {"a", "b"})
    first = content(store.archive)
    archived(store)
    assert first.items() <= content(store.archive).items()
    before = {run.path.name: bits(run.curve().to_frame()) for run in store}
    shards = list(store.archive.glob("*.runs.parquet"))
    merge_shards(store.archive)
    assert len(list(store.archive.glob("*.runs.parquet"))) == 2 < len(shards)  # `step` of run c has another type
    assert {run.path.name: bits(run.curve().to_frame()) for run in store} == before
    merged = content(store.archive)
    merge_shards(store.archive)
    assert content(store.archive) == merged


def test_shards_have_a_family_of_task_and_model(tmp_path):
    store = Store(tmp_path)
    specs = [tiny(), load_spec("toy", ["train.max_steps=3"])]
    for spec in specs:
        execute(spec, store, keep=True)
    archive_runs([run.path for run in store], store.archive)
    names = {path.name.rpartition("-")[0] for path in store.archive.glob("*.runs.parquet")}
    assert names == {"single_location", "single_location-toy"}


# -- going on


def test_an_archived_run_is_cached_and_needs_no_directory(tmp_path):
    store = Store(tmp_path)
    done = execute(tiny(), store)
    archived_run(store)
    again = execute(tiny(), store)
    assert (again.cached, again.result) == (True, done.result)
    assert run_sweep([tiny()], store, workers=0).results[done.run_id].cached
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def archived_run(store):
    """Archive the one run of a store, checkpoint and lock thrown away."""
    (run,) = store
    archive_runs([run.path], store.archive)
    run.remove_checkpoint()
    for path in run.path.iterdir():
        path.unlink()
    run.path.rmdir()


def test_a_longer_run_never_loses_the_archived_one(tmp_path):
    store, calm = Store(tmp_path / "runs"), Store(tmp_path / "calm")
    first = execute(tiny("train.maps=[0,4]"), store)
    run = store.run(first.run_id)
    curve, maps = run.curve(), run.maps()
    archived_run(store)
    before = content(store.archive)
    calls = iter(range(10**6))
    longer = tiny("train.max_steps=12")
    stopped = execute(longer, store, stop=lambda: next(calls) >= 3)
    assert stopped.result.status == "stopped"
    assert run.status() | {"state": "stopped", "step": 3} == run.status()
    assert (run.result(), run.curve() == curve) == (first.result, True)
    assert execute(tiny(), store).cached
    done = execute(longer, store)
    assert (done.result.resumed_from, done.result.steps) == (3, 12)
    assert (run.path / "curve.parquet").is_file()
    assert run.curve().steps.max() == 12
    assert run.curve().truncate(4) == curve.truncate(4)  # at step 6 the short run evaluated in full
    again, early = (m[m["step"] <= 4].reset_index(drop=True) for m in (run.maps(), maps))
    assert again.equals(early)
    assert done.result.final == execute(longer, calm).result.final
    assert execute(tiny(), store).cached
    assert content(store.archive) == before
    assert store.table()["steps"].tolist() == [12]


def test_the_result_with_more_steps_counts(tmp_path):
    store = Store(tmp_path)
    execute(tiny("train.max_steps=9"), store)
    archived_run(store)
    short = Store(tmp_path / "short")
    execute(tiny(), short)
    (run,) = short
    run.path.rename(tmp_path / run.path.name)  # a directory that stayed behind
    assert (store.run(run.path.name).result().steps, store.run(run.path.name).curve().steps.max()) == (9, 9)
    archive_runs([tmp_path / run.path.name], store.archive)
    assert archived_runs(store.archive)[run.path.name].steps == 9
    merge_shards(store.archive)
    assert len(pq.read_table(next(store.archive.glob("*.runs.parquet")))) == 1
    assert store.run(run.path.name).result().steps == 9


def test_the_curve_of_a_shorter_archived_run_does_not_stand_in_for_a_lost_one(tmp_path):
    store = Store(tmp_path)
    first = execute(tiny(), store)
    archived_run(store)
    execute(tiny("train.max_steps=9"), store)
    (tmp_path / first.run_id / "curve.parquet").unlink()
    with warned(Damaged, tmp_path / first.run_id / "curve.parquet"):
        assert not store.run(first.run_id).has_curve()


def test_a_store_with_a_copy_of_the_shards_trains_on(tmp_path):
    committed, mine = Store(tmp_path / "committed"), Store(tmp_path / "mine")
    execute(tiny(), committed)
    archived_run(committed)
    copy_shards(committed.archive, mine.archive)
    assert content(mine.archive) == content(committed.archive)
    swept = run_sweep([tiny(), tiny("seed=1")], mine, workers=0)
    assert [done.cached for done in swept.results.values()] == [True, False]
    copy_shards(committed.archive, mine.archive)  # nothing is written twice
    assert content(mine.archive) == content(committed.archive)


# -- damage


@pytest.mark.parametrize("damage", [lambda b: b[:-40], lambda b: b"", lambda b: b[:30] + b"\0" * 60 + b[90:]])
@pytest.mark.parametrize("kind", ["runs", "curves"])
def test_a_damaged_shard_is_named_and_the_rest_goes_on(tmp_path, damage, kind, capsys):
    store = odd_store(tmp_path)
    archived(store, {"a", "b"})
    (shard,) = store.archive.glob("*.runs.parquet")
    archived(store)
    victim = Path(str(shard).replace(".runs.", f".{kind}."))
    victim.write_bytes(damage(victim.read_bytes()))
    with warned(Damaged, victim.name):
        curves = {run.path.name: run.curve() for run in store}
    assert {name for name, curve in curves.items() if curve is not None} == {"c", "d", "e"}
    assert len(store.table()) == (3 if kind == "runs" else 5)
    assert main(["runs", str(tmp_path)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_links_in_an_archive_are_not_followed(tmp_path):
    there, here = odd_store(tmp_path / "there"), Store(tmp_path / "here")
    archived(there)
    here.archive.mkdir(parents=True)
    for path in there.archive.iterdir():
        (here.archive / path.name).symlink_to(path)
    assert list(here) == []
    linked = Store(tmp_path / "linked")
    linked.path.mkdir()
    linked.archive.symlink_to(there.archive)
    assert list(linked) == []
    curves = list(there.archive.glob("*.curves.parquet"))
    for path in curves:
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    with warned(Damaged) as damaged:
        assert there.run("a").curve() is None
    assert any(names(str(w.message), path) for w in damaged for path in curves)


@pytest.mark.parametrize("run_id", ["../outside", "/etc", ".hidden", "", None, "a\nb"])
def test_a_shard_cannot_name_what_lies_outside(tmp_path, run_id):
    store = Store(tmp_path)
    store.archive.mkdir()
    row = {"run_id": run_id, "spec": "{}", "status": "{}", "curves": ["step"], "maps": None}
    pq.write_table(pa.Table.from_pylist([row]), store.archive / "x-0.runs.parquet")
    with warned(Damaged, "x-0.runs.parquet"):
        assert list(store) == []


def test_an_odd_row_of_a_shard_hides_no_other_run(tmp_path):
    store = odd_store(tmp_path)
    archived(store)
    path = next(p for p in store.archive.glob("*.runs.parquet") if len(pq.read_table(p)) > 1)
    rows = pq.read_table(path).to_pylist()
    rows[0]["status"] = json.dumps({"state": "finished", "result": {"status": "\ud800"}})
    rows[1]["spec"] = "a: &a [1]\ntask: *a"
    pq.write_table(pa.Table.from_pylist(rows), path)
    with warned(Damaged, path.name, rows[0]["run_id"]):
        assert set(store.table()["run_id"]) == set(ODD) - {rows[0]["run_id"], rows[1]["run_id"]}
