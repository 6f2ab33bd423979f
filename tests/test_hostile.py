"""Files, names and requests of strangers: each costs a sentence at most, never a traceback, a hang or the memory."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from starlette.testclient import TestClient
from torch import nn

import unstuck
from refusals import invalid, refused, refused_command, warned
from stores import a_store
from unstuck.attach.watch import Watch
from unstuck.cli import main
from unstuck.errors import BadInput, InvalidCombination
from unstuck.forecast.sources import read_curve
from unstuck.laws.formula import parse
from unstuck.laws.tables import read_table, where
from unstuck.runner.execute import execute
from unstuck.runner.interrupts import interrupts
from unstuck.runner.sweep import expand, run_sweep
from unstuck.store.archive import archived_runs
from unstuck.store.locks import hold
from unstuck.store.parquet import TooLarge, numbers, read_parquet
from unstuck.store.shards import archive_runs
from unstuck.store.store import Damaged, RunDirectory, Store
from unstuck.tasks.single_location import SingleLocation
from unstuck.view.console import PlainConsole, new_table
from unstuck.view.dashboard.app import make_app
from unstuck.view.report.page import write_report
from waiting import eventually

TINY = ["task.T=4", "task.d=1", "model.width=8", "model.heads=1", "model.qk=4", "train.thresholds=[]"]


# -- conditions, formulas, requests


@pytest.mark.parametrize("condition", ["d=" + " " * 9_000 + "\nx" + " " * 9_000 + "\ny", " " * 18_000, "d" * 18_000])
def test_a_long_condition_is_refused_at_once(condition):
    begun = time.process_time()
    with refused("where", condition):
        where(pd.DataFrame({"d": [1, 2]}), [condition])
    assert time.process_time() - begun < 1  # 18,000 blanks took hours


@pytest.mark.parametrize(("condition", "rows"), [(" d <= 2 ", 2), ("d!=2", 2), ("word = b = c", 1), ("task.d>1", 2)])
def test_a_condition_is_cut_at_its_first_sign(condition, rows):
    table = pd.DataFrame({"d": [1, 2, 3], "word": ["a", "b = c", "x"]})
    assert len(where(table, [condition])) == rows


@pytest.mark.parametrize("formula", ["-" * 495 + "d", "d**" * 160 + "d", "sqrt(" * 80 + "d" + ")" * 80])
def test_a_deep_formula_is_refused_however_deep_the_caller_is(formula):
    def below(levels):
        if levels:
            return below(levels - 1)
        with refused("formula", formula):
            parse(formula)

    below(300)


def test_requests_of_other_pages_are_refused(tmp_path):
    client = TestClient(make_app(a_store(tmp_path, 3)), base_url="http://127.0.0.1")
    for path in ("/api/runs", "/api/law?formula=d", "/app.js"):
        for site in ("cross-site", "same-site"):
            assert client.get(path, headers={"Sec-Fetch-Site": site}).status_code == 403
        for site in ("same-origin", "none"):
            assert client.get(path, headers={"Sec-Fetch-Site": site}).status_code in (200, 400)
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link to it


# -- small files that take much memory


def constant(path, rows, **more):
    """A file of some kB whatever the number of rows: every column repeats one value."""
    columns = {"step": pa.array(np.zeros(rows)), **more}
    pq.write_table(pa.table(columns), path, compression="zstd")


@pytest.fixture
def small_limit(monkeypatch):
    """As if 20 MB were the most: the real limit would need a gigabyte to be tested."""
    monkeypatch.setattr("unstuck.store.parquet.LARGEST_TABLE", 20_000_000)


LONG_TEXT = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10_000, np.int32)), pa.array(["x" * 10_000]))
LARGE = {
    "rows": lambda path: constant(path, 2_000_000),
    "texts": lambda path: constant(path, 10_000, word=LONG_TEXT.cast(pa.string())),
    "a list": lambda path: constant(path, 1, many=pa.array([np.zeros(2_000_000)])),
    "lists of texts": lambda path: constant(path, 1, many=pa.array([["x"] * 400_000])),
}


@pytest.mark.parametrize("write", LARGE.values(), ids=LARGE.keys())
def test_a_table_that_takes_much_is_refused_before_it_is_read(tmp_path, small_limit, write):
    path = tmp_path / "curve.parquet"
    write(path)
    assert path.stat().st_size < 300_000
    with pytest.raises(TooLarge):
        read_parquet(path)
    with refused("source", str(path)):
        read_table(path)
    with refused("SOURCE", str(path)):
        read_curve(path)


def test_a_log_of_many_columns_is_refused_before_it_is_a_table(tmp_path):
    """600 kB that would be 3 GB: each row names a column of its own."""
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": [{"step": i, f"c{i}": 1} for i in range(20_000)]}))
    with refused("SOURCE", str(path)):
        read_curve(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.parametrize("name", ["curve.parquet", "trainer_state.json", "run-a.wandb", "x.tfevents.1", "curve.csv"])
def test_a_pipe_in_the_place_of_a_curve_is_refused(tmp_path, name):
    """To open one waits for its other end, and Ctrl-C does not end that."""
    os.mkfifo(tmp_path / name)

    def look(source):
        with refused("SOURCE"):
            read_curve(source)
        said.append(source)

    said, sources = [], [tmp_path, tmp_path / name]
    for source in sources:
        thread = threading.Thread(target=look, args=(source,), daemon=True)
        thread.start()
        thread.join(60)
    assert said == sources


def test_a_curve_that_is_a_link_out_of_its_directory_is_not_read(tmp_path):
    store = a_store(tmp_path / "runs", 2)
    directory = store / f"{0:016x}"
    (directory / "curve.parquet").rename(tmp_path / "curve.parquet")
    (directory / "curve.parquet").symlink_to(tmp_path / "curve.parquet")
    with refused("SOURCE"):
        read_curve(directory)
    assert len(read_curve(tmp_path / "curve.parquet"))


def test_a_column_of_records_is_refused(tmp_path):
    pq.write_table(pa.table({"step": [0], "record": [{"a": [1]}]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="record"):
        read_parquet(tmp_path / "a.parquet")


def test_tables_are_read_as_pandas_reads_them(tmp_path):
    frame = pd.DataFrame({"step": [1, 2], "word": ["a", None], "flag": [True, False]})
    frame["kind"] = pd.Categorical(["x", "y"])
    frame.index = ["first", "second"]
    path = tmp_path / "a.parquet"
    frame.to_parquet(path)
    pd.testing.assert_frame_equal(read_parquet(path).to_pandas(), pd.read_parquet(path))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_()])
def test_numbers_are_read_as_pyarrow_reads_them(kind):
    """Also of parts of a column, and where some are missing."""
    whole = pa.chunked_array([[1, 0, None, 1, 0, 1, 1, 0, 1, None], [1]]).cast(kind)
    for column in (whole, whole[:2], whole[3:9], whole[2:3], whole[:0]):
        expected = column.to_pylist()
        found = numbers(column)
        assert [None if x != x else x for x in found.tolist()] == expected
        assert numbers(column, missing=0).tolist() == [0 if x is None else x for x in expected]


def test_one_large_file_of_a_store_is_named_and_the_rest_goes_on(tmp_path, small_limit):
    store = a_store(tmp_path / "runs", 4)
    name = f"{0:016x}"
    constant(store / name / "curve.parquet", 2_000_000)
    with warned(Damaged, name):
        write_report(store, tmp_path / "report.html")
    assert f"{3:016x}" in (tmp_path / "report.html").read_text()
    with warned(Damaged, name):
        assert Store(store).run(name).curve() is None
    assert Store(store).run(f"{1:016x}").curve() is not None


def test_a_large_shard_is_named_and_the_rest_goes_on(tmp_path, monkeypatch):
    store = a_store(tmp_path / "runs", 4)
    archive_runs([store / f"{i:016x}" for i in range(2)], store / "archive")
    (listed,) = (store / "archive").glob("*.runs.parquet")
    names = pa.array([["x"] * 500_000], pa.list_(pa.string()))
    row = {"run_id": ["evil"], "spec": ["x"], "status": ["x"], "curves": names, "maps": names}
    pq.write_table(pa.table(row), store / "archive" / "evil.runs.parquet")
    twice = pq.read_table(listed)
    pq.write_table(pa.concat_tables([twice, twice]), store / "archive" / "twice.runs.parquet")
    monkeypatch.setattr("unstuck.store.parquet.LARGEST_TABLE", 20_000_000)
    with pytest.warns(Damaged) as caught:
        runs = archived_runs(store / "archive")
    assert sorted(runs) == [f"{i:016x}" for i in range(2)]
    assert {"evil", "twice"} == {str(w.message).partition(".runs")[0].rpartition("/")[2] for w in caught}


@pytest.mark.parametrize("heads", [1, 1000])
def test_maps_are_of_all_pairs_of_positions(tmp_path, heads):
    """One row about position 50,000 took 2.7 GB; so would a thousand steps of a thousand heads that share no step."""
    directory = RunDirectory(a_store(tmp_path / "runs", 2) / f"{0:016x}")
    places = {"row": 50_000, "column": 0} if heads == 1 else {"row": 0, "column": 0}
    rows = pd.DataFrame({"step": range(heads), "layer": 0, "head": range(heads), **places, "weight": 0.5})
    rows.to_parquet(directory.path / "maps.parquet", index=False)
    with warned(Damaged, directory.path.name):
        assert directory.maps() is None
    client = TestClient(make_app(tmp_path / "runs"), base_url="http://127.0.0.1")
    with pytest.warns(Damaged):
        assert client.get("/api/attention", params={"run": directory.path.name}).json()["steps"] == []


def test_deep_and_large_results_of_figures_are_skipped(tmp_path):
    from PIL import Image

    store = a_store(tmp_path / "runs", 2)
    (store / "deep.json").write_text("[" * 3_000 + "]" * 3_000)
    (store / "digits.json").write_text("9" * 4_400)
    (store / "large.json").write_text(" " * 6_000_000 + "{}")
    figure = {"figure": "big", "title": "", "profile": "", "verdict": "new", "claims": []}
    machine = {"unstuck": "", "commit": "", "date": "", "python": "", "machine": {}}
    (store / "big.json").write_text(json.dumps({**figure, "provenance": machine}))
    Image.new("1", (20_000, 10_000)).save(store / "big.png")
    with warnings.catch_warnings(record=True) as caught:
        write_report(store, tmp_path / "report.html")
    said = [str(w.message) for w in caught]
    assert all(any(f"/{name}" in text for text in said) for name in ("deep", "digits", "large", "big.png")), said


# -- names are text


@pytest.mark.parametrize("name", ["[/red]", "[bold]x[/bold]", "a[/b]c", "[link=x]"])
def test_markup_in_a_name_is_text(tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "regression", *TINY, "train.max_steps=2", "--out", f"o{name}"]) == 0
    assert f"o{name}" in capsys.readouterr().out
    os.makedirs(f"empty{name}")
    assert main(["runs", f"empty{name}"]) == 0
    assert f"empty{name}" in capsys.readouterr().out


def test_a_store_with_control_characters_moves_no_cursor(tmp_path, capsys):
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e[/b]"
    a_store(tmp_path / "runs", 3)
    spec = tmp_path / "runs" / f"{0:016x}" / "spec.yaml"
    plain = json.loads(spec.read_text())
    plain["task"]["name"] = evil
    plain["optim"][evil] = evil
    spec.write_text(json.dumps(plain))
    (tmp_path / "runs" / f"{1:016x}" / "status.json").write_text(json.dumps({"state": evil, "step": 1}))
    for words in (["runs"], ["runs", "--csv"], ["runs", "--json"], ["report"], ["fit", "--where", "nothing=1"]):
        command, *more = words
        formula = ["d"] if command == "fit" else []
        main([command, str(tmp_path / "runs"), *formula, *more])
        captured = capsys.readouterr()
        said = captured.out + captured.err
        assert said
        assert all(c.isprintable() or c in "\n\t" for c in said), [c for c in said if not c.isprintable()]


def test_a_console_writes_control_characters_out_and_styles_what_is_ours():
    stream = io.StringIO()
    console = PlainConsole(file=stream, force_terminal=True, color_system="standard", width=80)
    console.print("evil \x1b[31m [red]x[/red]", style="bold")
    table = new_table("a\x1b]0;b\x07", "[/c]")
    table.add_row("\x9b2J", "[/d]")
    console.print(table)
    shown = stream.getvalue()
    assert "\x1b[1mevil \\x1b[31m [red]x[/red]" in shown
    assert all(part in shown for part in ("\\x1b]0;b", "[/c]", "\\x9b2J", "[/d]"))
    assert "\x07" not in shown
    assert "\x9b" not in shown


def test_a_curve_with_odd_columns_is_told_in_plain_text(tmp_path, capsys):
    table = pd.DataFrame({"step": range(30), "loss": ["x\x1b[2J"] * 10 + [1.0] * 20})
    table.to_csv(tmp_path / "a.csv", index=False)
    assert main(["forecast", str(tmp_path / "a.csv")]) in (0, 2)
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


# -- specifications and code of one's own


def test_specifications_that_cannot_be_read_are_sentences(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("spec.yaml")
    for content in (b"task: {name: '\xff'}", b"\xff\xfet\0", b"[" * 3_000, b"seed: " + b"9" * 4_400, b"a: \x1b"):
        path.write_bytes(content)
        refused_command(capsys, "train", path, says=[path])
    for word in ("task.T=" + "9" * 4_400, "task.T=" + "[" * 3_000, "seed=1e999", "seed=" + "-" * 495 + "1"):
        refused_command(capsys, "train", "regression", word)


TASK = """
import torch
from unstuck.tasks.task import Batch, Task, config


@config
class Mine(Task):
    T: int = 8
    d: int = 2

    @property
    def inputs(self):
        return {inputs}

    @property
    def outputs(self):
        return {outputs}

    def {sample}(self, n, rng, world):
        tokens = torch.randn(n, self.T, self.d, generator=rng)
        relevant = torch.nn.functional.one_hot(torch.randint(self.T, (n,), generator=rng), self.T).bool()
        inputs = torch.cat([tokens, relevant[:, :, None].float()], 2)
        targets = tokens[relevant]
        {first}
        return {returned}
"""
PLAIN = {"inputs": "3", "outputs": "2", "sample": "sample", "first": "", "returned": "Batch(inputs, targets, relevant)"}
WRONG = {  # what is changed, and the field that is named
    "no sample": ({"sample": "draw"}, "Mine.sample"),
    "no inputs": ({"inputs": "super().inputs"}, "Mine.inputs"),
    "inputs that are text": ({"inputs": "'three'"}, "Mine.inputs"),
    "other inputs": ({"inputs": "7"}, "Mine.inputs"),
    "other outputs": ({"outputs": "5"}, "Mine.outputs"),
    "no relevant": ({"returned": "Batch(inputs, targets, None)"}, "relevant"),
    "relevant of another shape": ({"returned": "Batch(inputs, targets, relevant[:, :3])"}, "relevant"),
    "targets of one sequence": ({"returned": "Batch(inputs, targets[:1], relevant)"}, "targets"),
    "targets of another shape": ({"returned": "Batch(inputs, targets[:, :1], relevant)"}, "targets"),
    "two values": ({"returned": "(inputs, targets)"}, "Mine.sample"),
    "nothing": ({"returned": "None"}, "Mine.sample"),
    "targets of two sequences": ({"first": "targets = targets[:2]"}, "targets"),
    "an exit": ({"first": "raise SystemExit(3)"}, "line 24"),
    "a long message": ({"first": "raise ValueError('two\\nlines' * 9999)"}, "line 24"),
    "a misspelt name": ({"first": "torch.randnn(3)"}, "line 24"),
    "whole numbers": ({"returned": "Batch(inputs.long(), targets, relevant)"}, "inputs"),
}


@pytest.mark.parametrize(("change", "field"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_in_a_task_of_ones_own_names_file_and_field(tmp_path, capsys, monkeypatch, change, field):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TASK.format(**PLAIN | change))
    small = ["model.width=8", "model.heads=1", "model.qk=4", "train.max_steps=2"]
    refused_command(capsys, "train", "mine.py", *small, "--out", "runs", says=["mine.py", field])
    assert list((tmp_path / "runs").iterdir()) == []


def test_what_a_task_trains_on_is_tried_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    held_out = "\n\n    def held_out(self, n, rng, world):\n        return self.sample(n, rng, world)\n"
    batch = "\n\n    def batch(self, step, n, rng, world):\n        return self.sample(n, rng, world)[:2]\n"
    small = ["model.width=8", "model.heads=1", "model.qk=4", "train.max_steps=2"]
    (tmp_path / "mine.py").write_text(TASK.format(**PLAIN) + held_out + batch)
    refused_command(capsys, "train", "mine.py", *small, says=["mine.py", "Mine.batch"])
    (tmp_path / "mine.py").write_text(TASK.format(**PLAIN) + held_out)
    assert main(["train", "mine.py", *small]) == 0


@pytest.mark.parametrize(
    "text", ["raise SystemExit(3)", "raise ValueError('two\\nlines')", "import nothing_of_the_kind"]
)
def test_a_file_that_cannot_be_imported_is_one_sentence(tmp_path, capsys, text):
    (tmp_path / "mine.py").write_text(text)
    refused_command(capsys, "train", tmp_path / "mine.py", says=["mine.py", "line 1"])


def test_a_refused_run_leaves_no_directory_and_takes_none_away(tmp_path):
    store, words = Store(tmp_path), [*TINY, "train.max_steps=2"]
    (wrong,) = expand("regression", [*words, "train.compare=[aaaaaaaaaaaaaaaa]"])
    with invalid("aaaaaaaaaaaaaaaa"):
        execute(wrong, store)
    assert list(tmp_path.iterdir()) == []
    (right,) = expand("regression", words)
    execute(right, store)
    begun = store.run(right.run_id)
    with begun.lock():
        begun.remove_unless_begun()
    assert begun.status()["state"] == "finished"


def test_who_waits_for_the_lock_of_a_refused_run_does_not_get_it(tmp_path, monkeypatch):
    """The lock of a file that is no longer there keeps nobody out."""

    @contextmanager
    def removed_meanwhile(path):
        with hold(path) as mine:
            shutil.rmtree(path.parent)
            yield mine

    monkeypatch.setattr("unstuck.store.run_directory.hold", removed_meanwhile)
    with RunDirectory(tmp_path / "run").lock() as mine:
        assert not mine


def test_a_task_of_ones_own_that_fails_later_names_its_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    late = "self.T if n < 40 else self.missing"  # an evaluation draws more sequences than a trial
    (tmp_path / "mine.py").write_text(TASK.format(**PLAIN | {"first": late}))
    small = ["model.width=8", "model.heads=1", "model.qk=4", "train.max_steps=2"]
    refused_command(capsys, "train", "mine.py", *small, "--out", "runs", says=["mine.py", "line 24", "missing"])
    (tmp_path / "mine.py").write_text(TASK.format(**PLAIN))
    assert main(["train", "mine.py", *small, "--out", "runs"]) == 0


def test_a_sweep_over_a_wrong_task_is_refused_before_it_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TASK.format(**PLAIN | {"returned": "None"}))
    refused_command(capsys, "sweep", "mine.py", "seed=0,1", "--out", "runs", says=["mine.py", "Mine.sample"])


def test_wrong_arguments_of_train_are_named():
    task = SingleLocation(T=4, d=1)
    with refused("optim.learning_rate", 1e-3, allowed=["lr"]):
        unstuck.train(task, optim={"learning_rate": 1e-3})
    with refused("train.steps", 3, nearest="max_steps"):
        unstuck.train(task, train={"steps": 3})
    for field, wrong in (("task", "regression"), ("task", SingleLocation)):
        with refused(field, wrong):
            unstuck.train(wrong)
    for field, value in (("model", "transformer"), ("optim", "adam"), ("train", 5), ("seed", "a"), ("seed", -1)):
        with refused(field, value):
            unstuck.train(task, **{field: value})
    with invalid("Given.build"):  # a module that does not take the task's inputs
        unstuck.train(task, nn.Linear(7, 7), train={"max_steps": 1})


def test_weights_and_biases_without_a_login_is_a_sentence(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from unstuck.attach.trackers import WandbTracker

    def no_login(**settings):
        raise wandb.errors.UsageError("No API key configured.\nUse `wandb login`.")

    monkeypatch.setattr(wandb, "init", no_login)
    with invalid("wandb", "WANDB_MODE"):
        WandbTracker("project", expand("regression", TINY)[0])


# -- signals

LONG = [*TINY, "train.max_steps=1000000", "seed=0,1"]
needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")


@needs_signals
@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGTERM, 1),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 2, marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_the_group_costs_no_step(tmp_path, number, workers):
    words = ["sweep", "regression", *LONG, "--workers", str(workers), "--checkpoint", "10000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "unstuck", *words], start_new_session=True, stderr=subprocess.PIPE
    )

    def all_at_work():
        return sum((run.status() or {}).get("step", 0) > 0 for run in Store(tmp_path)) == workers

    assert eventually(all_at_work, 180)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 1
    assert said.count(b"\n") == 1, said
    for run in Store(tmp_path):
        status, checkpoint = run.status(), run.read_checkpoint()
        assert status["state"] == "stopped"
        assert checkpoint["step"] == status["step"] > 0


@needs_signals
def test_every_signal_to_end_is_an_interrupt():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with interrupts() as interrupted:
            assert not interrupted()
            os.kill(os.getpid(), number)
            assert interrupted()


@needs_signals
def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts() as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupted()
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupted()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_sweep_whose_runs_others_have_says_so(tmp_path, capsys):
    specs = expand("regression", [*TINY, "train.max_steps=2", "seed=0,1"])
    with Store(tmp_path).run(specs[0].run_id).lock():
        words = [*TINY, "train.max_steps=2", "seed=0,1", "--workers", "1", "--out", str(tmp_path), "--json"]
        assert main(["sweep", "regression", *words]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["skipped"] == 1
    assert "1 of 2" in captured.err
    later = run_sweep(specs, Store(tmp_path), workers=0)
    assert (len(later.results), later.skipped) == (2, 0)


def test_a_sweep_in_this_process_stops_with_a_checkpoint(tmp_path):
    specs = expand("regression", LONG)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(specs, Store(tmp_path), workers=0, checkpoint_seconds=1e6)
    timer.join()
    first = Store(tmp_path).run(specs[0].run_id)
    assert first.status()["state"] == "stopped"
    assert first.read_checkpoint()["step"] == first.status()["step"]


# -- Watch


class Drawing(nn.Module):
    """A model that draws from every generator there is."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        noise = random.random() + np.random.rand() + float(torch.rand(()))  # noqa: NPY002
        return self.layer(x) + noise


def test_watch_restores_all_random_states():
    watch, wrong = Watch(Drawing(), torch.zeros(2, 5, 8)), Drawing()

    def state():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002

    before = state()
    watch.look(0)
    assert state() == before
    with pytest.raises(InvalidCombination):  # also after a failure
        Watch(wrong, torch.zeros(2, 5, 3))
    assert state() == before


def test_watch_is_called_in_the_thread_that_made_it():
    watch, said = Watch(Drawing(), torch.zeros(2, 5, 8)), []

    def elsewhere():
        try:
            watch(0)
        except BadInput as e:
            said.append(e)

    thread = threading.Thread(target=elsewhere, name="logger")
    thread.start()
    thread.join()
    assert len(said) == 1
    assert "logger" in str(said[0])
    assert watch.rows == []
    assert watch(0) is not None
