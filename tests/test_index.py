"""The index of a store: the same table as from the runs' own files, whatever happens to either."""

import json
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import examples
from refusals import warned
from stores import a_store
from unstuck.cli import main
from unstuck.store import archive
from unstuck.store import index as index_module
from unstuck.store.archive import SCHEMA
from unstuck.store.cells import Cells
from unstuck.store.index import LEAST_NEW, RunIndex
from unstuck.store.index_file import MOST_FILES, NO_ROWS, cache_directory, index_path, read_index, write_index
from unstuck.store.shards import archive_runs
from unstuck.store.store import Damaged, RunDirectory, Store

RUNS = LEAST_NEW + 10  # enough for an index to be written
OLD = 1_700_000_000  # seconds: when the files of these runs were written, long enough ago to be settled


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    """Files count as settled at once, so that a test need not wait two seconds; a change gives them another time."""
    monkeypatch.setattr(index_module, "SETTLED", -(10**18))


def plain_table(path) -> pd.DataFrame:
    """What the runs' own files say, by reading all of them."""
    return pd.DataFrame([row for run in Store(path) if (row := run.row()) is not None])


def assert_same(path, found: pd.DataFrame | None = None) -> None:
    found = Store(path).table() if found is None else found
    pd.testing.assert_frame_equal(found, plain_table(path), check_exact=True)


def change_status(directory: RunDirectory, **changes) -> None:
    status = directory.status()
    directory.write_status({**status, "result": {**status["result"], **changes}})


@pytest.fixture
def store(tmp_path):
    return a_store(tmp_path / "runs", RUNS, rows=2)


@pytest.fixture
def read(monkeypatch):
    """The names of the runs whose files have been read."""
    names = []
    whole = RunDirectory.recorded_row

    def counted(self):
        names.append(self.path.name)
        return whole(self)

    monkeypatch.setattr(RunDirectory, "recorded_row", counted)
    return names


# -- the table

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    max_leaves=3,
)
rows_of_cells = st.lists(st.dictionaries(st.sampled_from("abc"), plain_values, min_size=1), min_size=1, max_size=5)


@settings(max_examples=examples(200), deadline=None)
@given(rows_of_cells, st.randoms(use_true_random=False))
def test_cells_are_the_table_that_pandas_makes(rows, random):
    """Also of parts that are joined, and in another order, to the type and the sign of a zero."""
    order = list(range(len(rows)))
    random.shuffle(order)
    cut = random.randint(0, len(rows))
    shuffled = [rows[i] for i in order]
    joined = Cells.of(shuffled[:cut]).join(Cells.of(shuffled[cut:])).select(np.argsort(order))
    for found in (Cells.of(rows).frame(), joined.frame()):
        expected = pd.DataFrame(rows)
        assert found.dtypes.to_dict() == expected.dtypes.to_dict()
        assert list(found) == list(expected)
        assert [list(map(repr, found[c].tolist())) for c in found] == [
            list(map(repr, expected[c].tolist())) for c in found
        ]


def test_the_second_table_reads_no_run(store, read):
    first = Store(store).table()
    assert len(read) == RUNS
    second = Store(store).table()
    assert len(read) == RUNS
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert_same(store, second)


def test_the_index_is_small_and_outside_the_store(store):
    before = {path: path.stat().st_mtime_ns for path in (store, *store.rglob("*"))}
    Store(store).table()
    assert {path: path.stat().st_mtime_ns for path in (store, *store.rglob("*"))} == before
    assert index_path(store).is_relative_to(cache_directory())
    assert not index_path(store).is_relative_to(store)
    assert index_path(store).stat().st_size < 400 * RUNS + 30_000


def test_a_few_runs_need_no_index(tmp_path):
    Store(a_store(tmp_path / "few", 3)).table()
    assert not cache_directory().exists()


def replace_spec(directory):
    spec = directory.spec()
    spec["task"]["d"] = 77
    directory._write("spec.yaml", json.dumps(spec).encode())


def edit_in_place(directory):
    """The same size, the same file: only its time tells."""
    path = directory.path / "status.json"
    path.write_text(path.read_text().replace('"seconds": 1.0', '"seconds": 2.0'))


def edit_and_set_the_time_back(directory):
    path = directory.path / "status.json"
    then = path.stat()
    edit_in_place(directory)
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))


def damage(directory):
    (directory.path / "status.json").write_bytes(b"{")


def remove(directory):
    for path in directory.path.iterdir():
        path.unlink()
    directory.path.rmdir()


def link_away(directory):
    other = directory.path.parent / f"{5:016x}" / "status.json"
    (directory.path / "status.json").unlink()
    (directory.path / "status.json").symlink_to(other)


def finish_later(directory):
    change_status(directory, steps=12345)


@pytest.mark.filterwarnings("ignore::unstuck.store.store.Damaged")
@pytest.mark.parametrize(
    "change", [replace_spec, edit_in_place, edit_and_set_the_time_back, damage, remove, link_away, finish_later]
)
def test_what_changes_is_read_again_and_nothing_else(store, read, change):
    before = Store(store).table()
    read.clear()
    time.sleep(0.02)  # a tick of the file system's clock
    change(RunDirectory(store / f"{3:016x}"))
    found = Store(store).table()
    assert set(read) <= {f"{3:016x}"}
    assert not found.equals(before)
    assert_same(store, found)


def test_what_was_written_just_now_is_read_again(store, read, monkeypatch):
    """Two writes within a tick of the clock may leave the same time and size."""
    monkeypatch.setattr(index_module, "SETTLED", 10**12)
    Store(store).table()
    read.clear()
    Store(store).table()
    assert len(read) == RUNS


def test_new_runs_and_new_columns(store, tmp_path):
    Store(store).table()
    a_store(tmp_path / "more", 3, name="zzz")
    for run in sorted((tmp_path / "more").iterdir()):
        run.rename(store / f"0{run.name[1:]}a")
    replace_spec(RunDirectory(store / f"{0:016x}"))
    assert_same(store)


def test_a_run_under_way_is_followed_and_one_that_was_killed_is_interrupted(store, read):
    directory = RunDirectory(store / f"{3:016x}")
    directory.write_status({"state": "running", "step": 5})
    index = RunIndex(store)

    def shown():
        return index.look().frame.set_index("run_id")["status"][directory.path.name]

    assert shown() == "interrupted"
    read.clear()
    with directory.lock():
        assert shown() == "running"
        assert Store(store).table().set_index("run_id")["status"][directory.path.name] == "running"
    assert shown() == "interrupted"
    assert read == []  # the lock alone was looked at
    assert_same(store, index.look().frame)


def test_nothing_new_is_the_same_object(store):
    index = RunIndex(store)
    assert index.look() is index.look()
    change_status(RunDirectory(store / f"{3:016x}"), steps=9)
    assert index.look().version == 2


def test_what_has_changed_since_a_version(store):
    index = RunIndex(store)
    first = index.look()
    change_status(RunDirectory(store / f"{3:016x}"), steps=9)
    second = index.look()
    remove(RunDirectory(store / f"{4:016x}"))
    third = index.look()
    places, gone = third.changes(first.version)
    assert (third.frame["run_id"].iloc[places].tolist(), gone) == ([f"{3:016x}"], [f"{4:016x}"])
    places, gone = third.changes(second.version)
    assert (places.tolist(), gone) == ([], [f"{4:016x}"])
    assert third.changes(0) is None
    assert third.changes(99) is None


# -- the archive


def test_archived_runs_are_in_the_index(store, read):
    directories = [run.path for run in Store(store)]
    assert len(archive_runs(directories, Store(store).archive)) == RUNS
    for directory in directories[: RUNS - 5]:  # the others are in both
        remove(RunDirectory(directory))
    assert_same(store)
    read.clear()
    table = Store(store).table()
    assert read == []
    change_status(RunDirectory(directories[-1]), steps=10**6)
    assert_same(store)
    shard = next(Store(store).archive.glob("*.runs.parquet"))
    shard.rename(shard.with_name(shard.name.replace(".runs", ".hidden")))
    assert len(Store(store).table()) == 5 < len(table)
    assert_same(store)


def test_an_archived_run_stays_when_its_directory_goes(store, monkeypatch):
    """Also if the directory was written just now, so that its row was not kept in the index."""
    directories = [run.path for run in Store(store)]
    archive_runs(directories, Store(store).archive)
    for directory in directories[1:]:
        remove(RunDirectory(directory))
    monkeypatch.setattr(index_module, "SETTLED", 10**12)
    Store(store).table()
    assert directories[0].name not in read_index(store).names
    remove(RunDirectory(directories[0]))
    assert len(Store(store).table()) == RUNS
    assert_same(store)


def test_a_damaged_row_of_a_shard_is_named_each_time(store):
    archive_runs([run.path for run in Store(store)], Store(store).archive)
    for directory in list(Store(store)):
        remove(directory)
    shard = next(Store(store).archive.glob("*.runs.parquet"))
    rows = pq.read_table(shard).to_pylist()
    rows[7]["status"] = "{"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), shard)
    for _ in range(2):
        with warned(Damaged, rows[7]["run_id"]):
            assert len(Store(store).table()) == RUNS - 1


def test_a_damaged_shard_is_named_each_time(store):
    directories = [run.path for run in Store(store)]
    archive_runs(directories, Store(store).archive)
    for directory in directories[5:]:
        remove(RunDirectory(directory))
    (Store(store).archive / "other-0123456789ab.runs.parquet").write_bytes(b"PAR1")
    for _ in range(2):
        archive._KNOWN.clear()  # as in a new process
        archive.read_shard.cache_clear()
        with warned(Damaged, "other-0123456789ab.runs.parquet"):
            assert len(Store(store).table()) == RUNS


# -- the file


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
def test_a_damaged_index_is_passed_over_and_written_anew(store, read, keep):
    Store(store).table()
    path = index_path(store)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    assert_same(store)
    read.clear()
    Store(store).table()
    assert read == []


def test_an_index_with_a_flipped_byte_is_not_used(store):
    Store(store).table()
    path = index_path(store)
    content = path.read_bytes()
    for place in range(0, len(content), len(content) // 200):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        assert read_index(store) is NO_ROWS


def test_the_index_of_another_store_or_of_other_code_is_not_used(store, tmp_path, monkeypatch):
    Store(store).table()
    other = a_store(tmp_path / "other", 3)
    index_path(other).write_bytes(index_path(store).read_bytes())
    assert read_index(other) is NO_ROWS
    assert len(read_index(store).names) == RUNS
    monkeypatch.setattr("unstuck.store.index_file._code", lambda: "other code")
    assert read_index(store) is NO_ROWS


def test_a_store_cannot_bring_an_index(store):
    """A file of that name in the store is nothing but a file."""
    Store(store).table()
    forged = read_index(store)
    index_path(store).rename(store / index_path(store).name)
    assert len(forged.names) == RUNS
    assert read_index(store) is NO_ROWS
    assert_same(store)


def test_without_a_place_for_caches_the_table_is_the_same(store, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert_same(store)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    assert_same(store)


def test_a_link_in_the_place_of_the_index_is_not_written_through(store, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    index_path(store).parent.mkdir(parents=True)
    index_path(store).symlink_to(mine)
    assert_same(store)
    assert mine.read_text() == "mine"


def test_readers_and_writers_at_once(store):
    """Eight threads, each with an index of its own, while runs change: all end with the table of the files."""
    stop = threading.Event()

    def change():
        for i in range(10**6):
            if stop.is_set():
                return
            change_status(RunDirectory(store / f"{i % RUNS:016x}"), steps=i + 1)

    def look(_):
        for _ in range(3):
            table = Store(store).table()
            assert len(table) == RUNS
            write_index(store, RunIndex(store)._read(NO_ROWS)[0])

    changer = threading.Thread(target=change)
    changer.start()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(look, range(8)))
    stop.set()
    changer.join()
    assert_same(store)


def test_old_indexes_are_removed(store, tmp_path):
    cache_directory().mkdir(parents=True)
    for i in range(MOST_FILES + 5):
        path = cache_directory() / f"{i:032x}.runs.parquet"
        path.write_bytes(b"")
        os.utime(path, (OLD + i, OLD + i))
    left = cache_directory() / ".x.runs.parquet.0123abcd.partial"
    left.write_bytes(b"")
    os.utime(left, (OLD, OLD))
    Store(store).table()
    there = sorted(path.name for path in cache_directory().iterdir())
    assert len(there) == MOST_FILES
    assert index_path(store).name in there
    assert f"{0:032x}.runs.parquet" not in there


# -- what is printed


def test_every_run_is_a_line_with_its_columns_side_by_side(store, capsys):
    assert main(["runs", str(store)]) == 0
    header, *lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    names = header.split()
    assert len(lines) == RUNS
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    table = Store(store).table().astype({"d": int, "T": int})
    for line, (_, row) in zip(lines, table.iterrows(), strict=True):
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        shown = dict(zip(names, cells, strict=True))
        assert (shown["run_id"], shown["d"], shown["T"]) == (row["run_id"], str(row["d"]), str(row["T"]))


def test_a_terminal_gets_columns_that_fit_and_the_names_of_the_others(capsys, monkeypatch):
    from unstuck.view import plain_table

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)
    monkeypatch.setattr(plain_table.os, "get_terminal_size", lambda _: os.terminal_size((30, 24)))
    plain_table.print_table({"run_id": ["a" * 16, "b"], "名前": ["値", "\x1b[31m\n"], "wide": ["x" * 20, "y"]})
    out = capsys.readouterr().out
    assert "wide" in out.splitlines()[-1]
    assert "x" * 20 not in out
    assert "\x1b[31m" not in out
    assert len(out.split("\n\n")[0].splitlines()) == 3
