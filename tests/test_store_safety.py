"""A store that a stranger made, or that was damaged: nothing outside it is written, nothing hangs, nothing is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from refusals import names, refused, refused_command, warned
from stores import a_store
from unstuck.attach.watch import Watch
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.config.load import build_spec, check
from unstuck.errors import BadInput
from unstuck.models.transformer import Transformer
from unstuck.papers.reproduce import redraw
from unstuck.runner.api import run_spec
from unstuck.runner.budget import is_spec_of
from unstuck.runner.execute import execute
from unstuck.runner.sweep import run_sweep
from unstuck.runner.units import stored_results
from unstuck.store.archive import archived_runs
from unstuck.store.store import Damaged, RunDirectory, Store
from unstuck.tasks.single_location import SingleLocation

RESULTS = Path(__file__).parents[1] / "results"
TINY = [
    *("task.T=6", "task.d=2", "model.width=8", "model.heads=1", "model.qk=4", "optim.lr=1e-3"),
    *("train.thresholds=[]", "train.max_steps=6"),
]


def tiny(*words):
    return load_spec("regression", [*TINY, *words])


@pytest.fixture
def outside(tmp_path):
    """A file that no command has been told of."""
    path = tmp_path / "outside.txt"
    path.write_text("mine")
    return path


# -- writing


def test_a_linked_report_is_replaced_and_not_written_through(tmp_path, outside):
    store = a_store(tmp_path / "store", 2)
    (store / "report.html").symlink_to(outside)
    assert main(["report", str(store)]) == 0
    assert outside.read_text() == "mine"
    assert not (store / "report.html").is_symlink()


def test_a_linked_table_of_a_figure_is_replaced_and_not_written_through(tmp_path, outside):
    for ending in ("csv", "json"):
        (tmp_path / f"fig1b.{ending}").write_bytes((RESULTS / f"fig1b.{ending}").read_bytes())
    for name in (".fig1b.json.partial", ".fig1b.png.partial", "fig1b.png"):
        (tmp_path / name).symlink_to(outside)
    redraw("fig1b", tmp_path)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("name", [".status.json.partial", ".spec.yaml.partial", ".curve.parquet.partial"])
def test_a_link_in_the_place_of_a_partial_file_is_not_written_through(tmp_path, outside, name):
    directory = Store(tmp_path / "runs").run(tiny().run_id)
    directory.path.mkdir(parents=True)
    (directory.path / name).symlink_to(outside)
    assert execute(tiny(), Store(tmp_path / "runs")).result.steps == 6
    assert outside.read_text() == "mine"


def test_a_linked_checkpoint_directory_is_neither_written_nor_read(tmp_path):
    store, elsewhere = Store(tmp_path / "runs"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    directory = store.run(tiny().run_id)
    directory.path.mkdir(parents=True)
    (directory.path / "checkpoint").symlink_to(elsewhere)
    execute(tiny(), store, keep=True)
    assert list(elsewhere.iterdir()) == []
    assert not (directory.path / "checkpoint").is_symlink()
    (directory.path / "checkpoint").rename(elsewhere / "checkpoint")
    (directory.path / "checkpoint").symlink_to(elsewhere / "checkpoint")
    with warned(Damaged, "state.safetensors"):
        assert execute(tiny("train.max_steps=9"), store).result.resumed_from == 0
    assert (elsewhere / "checkpoint/state.safetensors").is_file()


def test_a_watch_does_not_write_through_links(tmp_path, outside):
    model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    watch = Watch(model, torch.randn(2, 5, 8), every=1)
    watch(1, loss=0.5)
    (tmp_path / "run").mkdir()
    for name in ("curve.parquet", ".curve.parquet.partial", ".status.json.partial", "spec.yaml"):
        (tmp_path / "run" / name).symlink_to(outside)
    watch.save(tmp_path / "run")
    assert outside.read_text() == "mine"
    assert len(RunDirectory(tmp_path / "run").curve()) == 1


def test_what_is_no_file_is_not_replaced(tmp_path, capsys):
    store = a_store(tmp_path / "store", 2)
    os.mkfifo(tmp_path / "pipe")
    refused_command(capsys, "report", store, "--out", tmp_path / "pipe", says=[tmp_path / "pipe"], expected=1)
    assert (tmp_path / "pipe").is_fifo()


def test_a_writer_that_was_killed_leaves_nothing_for_good(tmp_path):
    directory = Store(tmp_path).run(tiny().run_id)
    (directory.path / "checkpoint").mkdir(parents=True)
    left = [
        ".curve.parquet.0123abcd.partial",
        "checkpoint/.state.safetensors.0123abcd.partial",
        "checkpoint/.tmpaB3dEf",
    ]
    for name in left:
        (directory.path / name).write_bytes(b"half")
    execute(tiny(), Store(tmp_path), keep=True)
    assert not any((directory.path / name).exists() for name in left)


# -- locks


def make_pipe(path, outside):
    os.mkfifo(path)


def make_directory(path, outside):
    path.mkdir()


def make_link(path, outside):
    path.symlink_to(outside)


def test_a_lock_that_is_no_file_hangs_nothing(tmp_path, outside):
    stores = {make: Store(tmp_path / make.__name__) for make in (make_pipe, make_directory, make_link)}
    words = []
    for make, store in stores.items():
        directory = store.run(tiny().run_id)
        directory.path.mkdir(parents=True)
        make(directory.path / ".lock", outside)
        directory.write_spec(tiny())
        directory.write_status({"state": "running", "step": 1})
        words += [f"runs {store.path}", f"train regression {' '.join(TINY)} --out {store.path}"]
    code = "import sys; from unstuck.cli import main; print([main(words.split()) for words in sys.argv[1:]])"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=100)
    assert done.stdout.endswith("[0, 1, 0, 1, 0, 1]\n")
    for store in stores.values():
        assert names(done.stderr, store.run(tiny().run_id).path / ".lock")
        swept = run_sweep([tiny()], store, workers=0)
        assert list(swept.failed) == [tiny().run_id]  # the others of a sweep would go on
    assert outside.read_text() == "mine"


def test_the_lock_of_another_user_is_seen(tmp_path, monkeypatch):
    """In a store that may be read but not written, a run under way is not taken for one that was interrupted."""

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    directory = Store(tmp_path).run("a")
    with directory.lock():
        monkeypatch.setattr("unstuck.store.locks.FileLock.acquire", denied)
        assert directory.is_locked()
    assert not directory.is_locked()


# -- YAML


def bomb(levels=9, wide=9):
    lines = ["a0: &a0 [" + ",".join(["lol"] * wide) + "]"]
    lines += [f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * wide) + "]" for i in range(1, levels)]
    return "\n".join([*lines, "task: {name: x}", "model: {}", "optim: {}", "train: {}", f"seed: *a{levels - 1}"])


def test_an_alias_bomb_is_refused_by_the_store_and_by_the_command(tmp_path, capsys):
    store = a_store(tmp_path / "store", 2)
    (store / ("0" * 16) / "spec.yaml").write_text(bomb())
    with warned(Damaged, "0" * 16):
        assert list(Store(store).table()["run_id"]) == ["0" * 15 + "1"]
    (tmp_path / "mine.yaml").write_text(bomb(levels=4))
    assert len(refused_command(capsys, "train", tmp_path / "mine.yaml", "--dry-run", says=["mine.yaml", "'&a0'"])) < 500


def test_deep_and_long_yaml_is_refused(tmp_path, capsys):
    for text in (
        "task: " + "[" * 50 + "]" * 50,
        "task: {x: " + "y" * 10**6 + "}",
        b"task: {x: \xff}",
    ):
        path = tmp_path / "mine.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert len(refused_command(capsys, "train", path, "--dry-run", says=["SPEC"])) < 500


@pytest.mark.parametrize("value", ["8:16", "010", "-010", "1:30.5", "0_7"])
def test_a_number_to_another_base_is_refused(tmp_path, value, capsys):
    for words in (["train", "regression", f"task.T={value}"], ["sweep", "regression", f"task.T=4,{value}"]):
        refused_command(capsys, *words, "--dry-run", says=["task.T", repr(value)])
    (tmp_path / "mine.yaml").write_text(f"task: {{T: {value}}}")
    refused_command(capsys, "train", tmp_path / "mine.yaml", "--dry-run", says=["mine.yaml", repr(value)])


def test_a_large_value_does_not_fill_the_terminal():
    error = BadInput("task.T", [["x" * 10**6] * 10**4] * 10**4, "a whole number")  # as text, a hundred terabytes
    assert len(str(error)) < 200


MODEL = """
import torch
from {module} import dataclass

@dataclass(frozen=True)
class Inner:
    size: int = 8

@dataclass(frozen=True)
class Mine:
    width: int = 8
    inner: Inner = Inner()

    def build(self, task, rng):
        return torch.nn.Flatten()
"""


@pytest.mark.parametrize("module", ["dataclasses", "pydantic.dataclasses"])
def test_a_misspelt_key_of_ones_own_model_is_refused(tmp_path, module):
    (tmp_path / "mine.py").write_text(MODEL.format(module=module))
    name = f"model.name={tmp_path / 'mine.py'}"
    with refused("model.widht", 9, nearest="width"):
        load_spec("regression", [name, "model.widht=9"])
    spec = load_spec("regression", [name, "model.width=9"])
    assert spec.model.width == 9
    with refused("model.inner.sise", 3):
        check(type(spec.model), {"inner": {"sise": 3}}, "model")


# -- finished is finished


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1 not really")])
def test_a_run_whose_curve_is_lost_is_not_done(tmp_path, damage):
    store = Store(tmp_path)
    whole = execute(tiny(), store)
    directory = store.run(tiny().run_id)
    curve = directory.curve()
    for again in (
        lambda: execute(tiny(), store),
        lambda: run_sweep([tiny()], store, workers=0).results[whole.run_id],
    ):
        damage(directory.path / "curve.parquet")
        directory.remove_checkpoint()
        with warned(Damaged, directory.path / "curve.parquet"):
            assert stored_results([tiny()], store) is None
        with warned(Damaged, directory.path / "curve.parquet"):
            result = again()
        assert not result.cached
        assert result.result.final == whole.result.final
        assert directory.curve() == curve
    assert execute(tiny(), store).cached


def test_a_run_is_finished_only_when_its_curve_is_on_disk(tmp_path, monkeypatch):
    """The order of what reaches the disk: a name counts only once its file and then its directory are synced."""
    log = []
    fsync, replace = os.fsync, os.replace

    def name(descriptor):
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    def logged_fsync(descriptor):
        fsync(descriptor)
        log.append(("synced", name(descriptor)))

    def logged_replace(source, target):
        replace(source, target)
        text = Path(target).read_text() if Path(target).name == "status.json" else ""
        log.append(("finished" if '"finished"' in text else "replaced", Path(target).name, Path(source).name))

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", logged_replace)
    execute(tiny(), Store(tmp_path))
    end = [entry[0] for entry in log].index("finished")
    curve = max(i for i, entry in enumerate(log[:end]) if entry[:2] == ("replaced", "curve.parquet"))
    assert ("synced", log[curve][2]) in log[:curve]  # its content, under the temporary name
    assert ("synced", tiny().run_id) in log[curve:end]  # then the name
    assert ("synced", tmp_path.name) in log[:end]
    assert ("synced", log[end][2]) in log[:end]
    assert ("synced", tiny().run_id) in log[end:]


# -- checkpoints


def stopped(spec, store, at):
    calls = iter(range(10**6))
    return execute(spec, store, stop=lambda: next(calls) >= at)


def unsign(path):
    """Make a checkpoint what it was before checkpoints named their run."""
    with safe_open(path, framework="pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
        header = f.metadata()
    save_file(tensors, path, {k: v for k, v in header.items() if k in ("state", "format")})


def test_the_checkpoint_of_another_seed_is_not_trained_on(tmp_path):
    store = Store(tmp_path)
    for seed in (0, 1):
        stopped(tiny(f"seed={seed}"), store, 3)
    first, second = (store.run(tiny(f"seed={seed}").run_id).path / "checkpoint/state.safetensors" for seed in (0, 1))
    first.write_bytes(second.read_bytes())
    with warned(Damaged, tiny().run_id, tiny("seed=1").run_id):
        again = execute(tiny(), store)
    assert again.result.resumed_from == 0
    assert again.result.final == execute(tiny(), Store(tmp_path / "calm")).result.final


def test_a_checkpoint_with_a_flipped_bit_is_not_trained_on(tmp_path):
    calm = execute(tiny(), Store(tmp_path / "calm")).result.final
    for place in (0.1, 0.35, 0.6, 0.9, 0.999):
        store = Store(tmp_path / str(place))
        stopped(tiny(), store, 3)
        path = store.run(tiny().run_id).path / "checkpoint/state.safetensors"
        content = bytearray(path.read_bytes())
        content[int(place * len(content))] ^= 4
        path.write_bytes(bytes(content))
        with warned(Damaged, "state.safetensors"):
            again = execute(tiny(), store)
        assert (again.result.resumed_from, again.result.final) == (0, calm)


def test_a_checkpoint_of_an_earlier_version_goes_on_beside_its_own_specification(tmp_path):
    calm = execute(tiny(), Store(tmp_path / "calm")).result.final
    store = Store(tmp_path / "runs")
    stopped(tiny(), store, 3)
    directory = store.run(tiny().run_id)
    unsign(directory.path / "checkpoint/state.safetensors")
    again = execute(tiny(), store)
    assert (again.result.resumed_from, again.result.final) == (3, calm)
    for write in (lambda: (directory.path / "spec.yaml").unlink(), lambda: directory.write_spec(tiny("seed=1"))):
        unsign(directory.path / "checkpoint/state.safetensors")
        write()
        with warned(Damaged, "state.safetensors"):
            assert execute(tiny("train.max_steps=9"), store).result.resumed_from == 0
        directory.remove_checkpoint()
        (directory.path / "status.json").unlink()
        stopped(tiny(), store, 3)


def test_the_specification_of_every_stored_run_is_known_as_its_own():
    directories = list(Store(RESULTS / "store"))
    assert directories
    for directory, another in zip(directories, directories[1:] + directories[:1], strict=True):
        spec = build_spec(directory.spec())
        assert is_spec_of(directory.spec(), spec)
        assert not is_spec_of(another.spec(), spec)


def test_an_unsigned_checkpoint_of_a_class_of_ones_own_goes_on(tmp_path):
    spec = run_spec(SingleLocation(T=4, d=1), Transformer(width=8, heads=1, qk=4), train={"max_steps": 6})
    store = Store(tmp_path)
    stopped(spec, store, 3)
    unsign(store.run(spec.run_id).path / "checkpoint/state.safetensors")
    assert execute(spec, store).result.resumed_from == 3


# -- one bad run never hides the others

ODD = {
    "a crossing that is no number": lambda s: s["result"]["crossings"].update(abc=1.0),
    "a crossing at no step": lambda s: s["result"]["crossings"].update({"0.1": "x"}),
    "watched is no list": lambda s: s["result"].update(watched=5),
    "half a surrogate pair": lambda s: s["result"].update(status="\ud800"),
    "half a surrogate pair as a key": lambda s: s["result"]["final"].update({"\ud800": 1.0}),
    "a state of half a surrogate pair": lambda s: s.update(state="\ud800", result=None),
    "a threshold that is text": lambda s: s["result"].update(threshold="x"),
    "a plateau without end": lambda s: s["result"].update(plateau_steps=float("inf")),
    "maps at no step": lambda s: s["result"].update(mapped=["x"]),
    "compared with a number": lambda s: s["result"].update(compared=3),
    "negative steps": lambda s: s["result"].update(steps=-1),
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD.keys())
def test_an_odd_status_hides_no_other_run(tmp_path, change, capsys):
    store = a_store(tmp_path / "store", 5)
    path = store / ("0" * 16) / "status.json"
    status = json.loads(path.read_text())
    change(status)
    path.write_text(json.dumps(status))
    with warned(Damaged, "0" * 16):
        table = Store(store).table()
    assert list(table["run_id"]) == [f"{i:016x}" for i in range(1, 5)]
    for words in (["--json"], ["--csv"], []):
        assert main(["runs", str(store), *words]) == 0
        captured = capsys.readouterr()
        assert f"{'0' * 16}/status.json" in captured.err
        assert f"{3:016x}" in captured.out
    assert main(["fit", str(store), "d", "--json"]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_stored_results_are_written_as_they_were_read():
    runs = archived_runs(Store(RESULTS / "store").archive)
    assert runs
    for run_id, archived in runs.items():
        status = json.loads(archived.status_text)
        result = RunDirectory(RESULTS / "store" / run_id).result()
        assert json.dumps(result.model_dump()) == json.dumps(status["result"])
