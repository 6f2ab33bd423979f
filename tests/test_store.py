"""The run store: whole files, damage named and passed over, nothing run by reading; sweeps survive being killed."""

import fcntl
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch

from refusals import names, refused_command, warned
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.models.transformer import Transformer
from unstuck.runner.api import run_spec
from unstuck.runner.execute import execute
from unstuck.runner.sweep import expand, run_sweep
from unstuck.runner.units import stored_results
from unstuck.store.store import Damaged, Store
from unstuck.tasks.single_location import SingleLocation
from unstuck.tasks.task import config
from unstuck.view.columns import telling_columns
from waiting import eventually

TINY = [
    "task.T=6",
    "task.d=2",
    "model.width=32",
    "model.heads=2",
    "model.qk=16",
    "optim.lr=1e-3",
    "train.thresholds=[]",
]


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "runs")
    for seed in range(4):
        execute(load_spec("regression", [*TINY, "train.max_steps=6", f"seed={seed}"]), store, keep=True)
    return store


def test_columns_that_tell_runs_of_one_task_apart():
    """Settings that tasks do not share differ between all runs of a store, and say nothing."""
    table = pd.DataFrame(
        {
            "run_id": ["a", "b", "c"],
            "task": ["x", "x", "y"],
            "d": [1, 2, None],
            "tokens": [None, None, 9],
            "thresholds": [[0.1], [0.2], [0.3]],
            "crossing_0.1": [1.0, 2.0, 3.0],
            "status": ["emerged"] * 3,
        }
    )
    assert telling_columns(table) == ["run_id", "task", "status", "d"]
    assert telling_columns(table[:2]) == ["run_id", "status", "d"]
    both = table.assign(layers=[1, 2, 2], T=[8, 16, None])
    assert telling_columns(both)[3:] == ["d", "T", "layers"]  # what few tasks have comes first


def test_a_damaged_file_is_named_and_the_rest_works(store, capsys):
    paths = sorted(p for p in store.path.iterdir())
    (paths[0] / "status.json").write_text('{"state": "fin')
    (paths[1] / "spec.yaml").write_bytes(b"")
    (paths[2] / "curve.parquet").write_bytes(b"PAR1 not really")
    (paths[2] / "checkpoint/state.safetensors").write_bytes(b"\xff" * 40)
    (store.path / "stranger.txt").write_text("hello")
    (store.path / "empty").mkdir()
    with warned(Damaged) as damaged:
        assert len(store.table()) == 2
    assert [any(names(str(w.message), path.name) for w in damaged) for path in paths[:4]] == [True, True, False, False]
    with warned(Damaged, paths[2] / "curve.parquet"):
        assert store.run(paths[2].name).curve() is None
    with warned(Damaged, paths[2] / "checkpoint/state.safetensors"):
        assert store.run(paths[2].name).resume(lambda checkpoint: checkpoint) is None
    assert main(["runs", str(store.path)]) == 0
    out, err = capsys.readouterr()
    assert names(err, paths[0] / "status.json", paths[1] / "spec.yaml")
    assert "finished" in out


def test_reading_a_store_runs_nothing_that_it_names(store, tmp_path):
    victim = next(p for p in store.path.iterdir() if p.is_dir())
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    (victim / "spec.yaml").write_text(
        f"task: {{name: {trap}}}\nseed: !!python/object/apply:os.system ['touch {tmp_path / 'sprung'}']\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Damaged)
        store.table()
    assert not (tmp_path / "sprung").exists()


def test_while_one_process_has_a_run_another_leaves_it_alone(store):
    spec = load_spec("regression", [*TINY, "train.max_steps=9"])
    with store.run(spec.run_id).lock() as mine:
        assert mine
        script = (
            "import sys; from unstuck.store.store import Store\n"
            "with Store(sys.argv[1]).run(sys.argv[2]).lock() as mine: print(mine)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(store.path), spec.run_id], capture_output=True, text=True
        )
    assert done.stdout.strip() == "False"
    assert execute(spec, store).result.steps == 9


def test_a_full_disk_is_a_sentence_and_what_was_finished_stays(store, monkeypatch, capsys):
    before = len(store.table())

    def full(self, name, write):
        raise OSError(28, "No space left on device", name)

    monkeypatch.setattr("unstuck.store.run_directory.RunDirectory._replace", full)
    words = ["train", "regression", *TINY, "seed=99", "--out", store.path]
    refused_command(capsys, *words, says=["No space left on device"], expected=1)  # the system's words
    monkeypatch.undo()
    assert len(store.table()) == before


def test_a_diverging_run_does_not_stop_a_sweep(tmp_path):
    words = [*TINY, "train.max_steps=30", "optim.name=sgd", "optim.lr=1e-3,100", "seed=0,1"]
    specs = expand("regression", words)
    done = run_sweep(specs, Store(tmp_path), workers=0).as_json()
    assert (done["runs"], done["diverged"], done["finished"]) == (4, 2, 2)
    again = run_sweep(specs, Store(tmp_path), workers=2)
    assert all(r.cached for r in again.results.values())


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path):
    process = start_sweep(tmp_path, stops=20)
    while not at_work(tmp_path, since=0):
        time.sleep(0.05)
    workers = children(process.pid)
    process.kill()  # the parent alone
    process.wait()
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), seconds=40)


def children(pid: int) -> list[int]:
    """The sweep's worker processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
            if (
                int(text.rpartition(")")[2].split()[1]) == pid
                and b"spawn_main" in (path.parent / "cmdline").read_bytes()
            ):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_the_table_has_the_names_laws_are_written_in(store):
    table = store.table()
    assert {"T", "d", "B", "p", "layers", "heads", "lr", "seed", "status", "plateau_steps", "steps"} <= set(table)
    assert table["status"].tolist() == ["finished"] * 4


def test_in_a_race_a_run_is_stopped_once_it_has_passed_the_best_plateau(tmp_path):
    easy = [*TINY[:-1], "task.T=2", "task.d=1", "train.thresholds=0.2", "train.max_steps=2000", "seed=0"]
    race = expand("regression", [*easy, "optim.lr=3e-3,1e-3,1e-6"])
    store = Store(tmp_path)
    assert stored_results(race, store) is None
    done = run_sweep([race], store, workers=0)
    first, second, third = (done.results[spec.run_id] for spec in race)
    assert first.result.status == "emerged"
    best = min(r.result.plateau_steps for r in (first, second) if r.result.plateau_steps)
    assert (third.result.status, third.result.steps) == ("censored", math.ceil(best))
    assert len(stored_results(race, store)) == 3
    assert all(r.cached for r in run_sweep([race], store, workers=1).results.values())


def test_a_class_that_no_worker_could_import_is_swept_in_this_process(tmp_path):
    @config
    class Local(SingleLocation):
        def sample(self, n, rng, world):
            if self.d == 3:
                raise RuntimeError("broken")
            return super().sample(n, rng, world)

    budget = {"max_steps": 3, "thresholds": ()}
    specs = [run_spec(Local(T=4, d=d), Transformer(width=8, heads=1, qk=4), train=budget) for d in (1, 2, 3)]
    done = run_sweep(specs, Store(tmp_path), workers=0)
    assert done.as_json() | {"finished": 2, "failed": 1, "skipped": 0} == done.as_json()
    assert "broken" in done.failed[specs[2].run_id]
    assert run_sweep(specs[:2], Store(tmp_path), workers=0, seconds=0).count("finished") == 2  # cached


FOREIGN = [
    '{"state": "finished", "result": [1]}',
    '{"state": "finished", "result": {"crossings": [1]}}',
    '{"state": "finished", "result": {"a": 1}}',
    '{"result": {}}',
    "[" * 100_000,
    "3",
]


@pytest.mark.parametrize("content", FOREIGN)
def test_a_status_of_another_shape_is_named_and_the_run_done_again(store, content, capsys):
    path = sorted(store.path.iterdir())[0]
    (path / "status.json").write_text(content)
    for command in (["runs", str(store.path)], ["fit", str(store.path), "T"]):
        main(command)
        assert "Traceback" not in capsys.readouterr().err
    done = run_sweep(expand("regression", [*TINY, "train.max_steps=6", "seed=0,1,2,3"]), store, workers=0)
    assert not done.failed
    assert len(done.results) == 4
    assert path.name in done.results
    assert json.loads((path / "status.json").read_text())["state"] == "finished"


def test_the_checkpoint_of_another_run_is_not_used(tmp_path):
    small, large = (
        load_spec("regression", [*TINY, "train.max_steps=6", w]) for w in ("model.width=8", "model.width=12")
    )
    for spec in (small, large):
        execute(spec, Store(tmp_path), keep=True)
    here, there = (Store(tmp_path).run(spec.run_id).path for spec in (small, large))
    (here / "checkpoint/state.safetensors").write_bytes((there / "checkpoint/state.safetensors").read_bytes())
    with warned(Damaged, here / "checkpoint/state.safetensors"):
        again = execute(load_spec("regression", [*TINY, "train.max_steps=9", "model.width=8"]), Store(tmp_path))
    assert (again.result.steps, again.result.resumed_from) == (9, 0)


def test_a_disk_that_takes_no_checkpoint_is_a_sentence(tmp_path, monkeypatch, capsys):
    import safetensors.torch

    def full(*args):
        raise safetensors.SafetensorError("the disk is full")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    words = ["train", "regression", *TINY, "train.max_steps=2", "--out", tmp_path]
    refused_command(capsys, *words, says=["checkpoint", "the disk is full"], expected=1)


def test_a_run_nobody_is_at_is_not_shown_as_running(store):
    run = next(iter(store))
    run.write_status({"state": "running", "step": 3})
    assert store.table().set_index("run_id")["status"][run.path.name] == "interrupted"
    with run.lock():
        assert store.table().set_index("run_id")["status"][run.path.name] == "running"


# -- killing


def sweep_words(stops: int) -> list[str]:
    """Runs long enough to be at work whenever they are stopped."""
    return [*TINY, f"train.max_steps={150 + 150 * stops}", f"seed={','.join(map(str, range(2 * (stops + 1))))}"]


def start_sweep(out: Path, stops: int = 3) -> "subprocess.Popen[bytes]":
    code = "from unstuck.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
    words = ["sweep", "regression", *sweep_words(stops), "--workers", "2", "--checkpoint", "0.1", "--out", str(out)]
    return subprocess.Popen([sys.executable, "-c", code, *words], start_new_session=True, stderr=subprocess.DEVNULL)


def at_work(out: Path, since: float, run: str = "*") -> bool:
    """Has a run written a checkpoint since then?"""
    return any(p.stat().st_mtime > since for p in out.glob(f"{run}/checkpoint/*") if p.exists())


def stopped_at_work(sweep: int, out: Path, since: float) -> list[int]:
    """Its two workers, held still, if each is amid a run with a checkpoint since then; else they go on."""
    workers = children(sweep)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    under_way = [run.path.name for run in Store(out) if (run.status() or {}).get("state") == "running"]
    if len(workers) == len(under_way) == 2 and all(at_work(out, since, name) for name in under_way):
        return workers
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    return []


def sweep_at_work(out: Path, stops: int) -> "subprocess.Popen[bytes]":
    """A sweep that has written a checkpoint since it was started."""
    begun = time.time()
    process = start_sweep(out, stops)
    while process.poll() is None and not at_work(out, begun):
        time.sleep(0.02)
    assert process.poll() is None, "the sweep was over before it could be stopped"
    return process


def kill_at_random(out: Path, times: int, seed: int, stops: int) -> None:
    """Start the sweep and SIGKILL its process group, again and again; what was finished stays as it was."""
    rng = random.Random(seed)
    finished: dict[str, bytes] = {}
    for _ in range(times):
        process = sweep_at_work(out, stops)
        time.sleep(rng.uniform(0.0, 0.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for run in Store(out):  # what was finished before is finished still, to the byte
            name = run.path.name
            if name in finished:
                assert (run.path / "status.json").read_bytes() == finished[name]
            elif (run.status() or {}).get("state") == "finished":
                finished[name] = (run.path / "status.json").read_bytes()


def interrupt(out: Path, stops: int) -> None:
    """Ctrl-C: the sweep ends by itself, and no run is left as if it were under way."""
    process = sweep_at_work(out, stops)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 1
    states = {(run.status() or {}).get("state") for run in Store(out)}
    assert states <= {"stopped", "finished"}


def kill_a_worker(out: Path, stops: int) -> None:
    """As the system does when memory runs out: SIGKILL to one worker; the sweep starts others and ends well."""
    begun = time.time()
    process = sweep_at_work(out, stops)
    while not (workers := stopped_at_work(process.pid, out, begun)):
        assert process.poll() is None, "the sweep was over before a worker could be killed"
        time.sleep(0.02)
    os.kill(workers[0], signal.SIGKILL)
    os.kill(workers[1], signal.SIGCONT)
    assert process.wait(timeout=300) == 0


def assert_as_if_undisturbed(out: Path, stops: int, calm: Store) -> None:
    specs = expand("regression", sweep_words(stops))
    run_sweep(specs, calm, workers=0)
    resumed = 0
    for spec in specs:
        a, b = calm.run(spec.run_id), Store(out).run(spec.run_id)
        assert a.curve() == b.curve()
        x, y = (run.read_checkpoint()["tensors"] for run in (a, b))
        assert x.keys() == y.keys()
        assert all(torch.equal(x[k], y[k]) for k in x)
        status = json.loads((b.path / "status.json").read_text())
        assert status["state"] == "finished"
        resumed += status["result"]["resumed_from"] > 0
    assert resumed > 0


def test_a_killed_worker_costs_nothing_but_time(tmp_path):
    """Signals to the whole sweep are those of tools/kill_table.py (test_kills.py), with forked workers."""
    out = tmp_path / "stopped"
    kill_a_worker(out, stops=1)
    assert_as_if_undisturbed(out, 1, Store(tmp_path / "calm"))


@pytest.mark.slow
def test_what_stops_a_sweep_costs_nothing_but_time(tmp_path):
    out = tmp_path / "stopped"
    kill_at_random(out, 1, seed=3, stops=2)
    interrupt(out, stops=2)
    kill_a_worker(out, stops=2)
    assert_as_if_undisturbed(out, 2, Store(tmp_path / "calm"))


def test_a_look_at_a_run_does_not_make_it_busy(tmp_path, monkeypatch):
    directory = Store(tmp_path).run("a")
    with directory.lock() as mine:
        assert mine
        assert directory.is_locked()
        with Store(tmp_path).run("a").lock() as another:
            assert not another
    monkeypatch.setattr("unstuck.store.locks.PATIENCE", 10)
    with open(tmp_path / "a" / ".lock") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.03, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with directory.lock() as mine:
            assert mine
