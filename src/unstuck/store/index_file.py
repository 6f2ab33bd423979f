"""The rows of a store's runs in the user's cache directory, so that the next process need not read them again.

One Parquet file a store, with its SHA-256 at the end: a row a run, its cells as JSON texts (`cells.py`), and the
signatures of the files that the row was read from (`scan.py`). It is never in the store, which may be another's; nor
can a store bring an index. The file is replaced whole, so that of two writers the last one wins; both are right, since
a row counts only while its signatures do. A file that is damaged, of other code or of another store is passed over and
written anew.
"""

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unstuck.files import PARTIAL, is_own_file, write_bytes
from unstuck.store.cells import Cells, Column
from unstuck.store.parquet import numbers
from unstuck.store.scan import NO_FILES, Signature

MOST_FILES = 64  # indexes that are kept, those written last; one has some 100 bytes a run
MOST_COLUMNS = 2000  # of an index: a store of stranger ones is read anew each time
ABANDONED = 86_400  # seconds after which a partial file has no writer any more
DIGEST = 32  # bytes
ENDING = ".runs.parquet"
HEADER = b"unstuck"  # the key of what is said about all rows
CELL = ":"  # before the names of columns that hold cells
KEYS, ARCHIVED = "keys", "archived"
SIGNATURE = [f"signature_{i}" for i in range(len(NO_FILES))]

Shards = list[list[Any]] | None  # name, time and size of the files that list archived runs; None: to be read again


@dataclass(frozen=True)
class Rows:
    """The rows of a store's runs as they were read, in the order of their names."""

    names: Sequence[str]
    signatures: Sequence[Signature]
    archived: frozenset[str]
    shards: Shards
    cells: Cells


NO_ROWS = Rows([], [], frozenset(), [], Cells.of([]))


def cache_directory() -> Path:
    """Where the platform wants the user's caches; raises where there is no such place."""
    if sys.platform == "win32":
        base = os.environ["LOCALAPPDATA"]
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else str(Path.home() / ".cache")
    return Path(base) / "unstuck"


def index_path(root: Path) -> Path:
    """The index of a store, by its path."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()
    return cache_directory() / f"{digest[:32]}{ENDING}"


def read_index(root: Path) -> Rows:
    """The rows that an earlier process has kept; none where it has not, or they cannot be used."""
    try:
        path = index_path(root)
        return _read(path, root) if is_own_file(path) else NO_ROWS
    except Exception:  # pyarrow has many ways to say that a file is damaged; the runs themselves are there
        return NO_ROWS


def write_index(root: Path, rows: Rows) -> None:
    """Keep rows for the next process, as far as there is a place for them."""
    if len(rows.cells.columns) > MOST_COLUMNS:
        return
    with contextlib.suppress(OSError, KeyError, RuntimeError, UnicodeError, pa.ArrowException):
        path, table = index_path(root), _as_table(rows, root)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        content = sink.getvalue().to_pybytes()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_bytes(path, content + hashlib.sha256(content).digest())
        _remove_old(path.parent)


def _read(path: Path, root: Path) -> Rows:
    content = memoryview(path.read_bytes())
    content, digest = content[:-DIGEST], content[-DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        return NO_ROWS
    table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False).unify_dictionaries().combine_chunks()
    header = json.loads(table.schema.metadata[HEADER])
    if header["code"] != _code() or header["root"] != os.path.realpath(root):
        return NO_ROWS
    cells = {name: _column(table[name]) for name in table.column_names if name.startswith(CELL)}
    columns = {name.removeprefix(CELL): column for name, column in cells.items()}
    names = columns["run_id"].values()
    signatures = zip(*(numbers(table[name]).tolist() for name in SIGNATURE), strict=True)
    there = zip(names, numbers(table[ARCHIVED]).tolist(), strict=True)
    archived = frozenset([*header["unread"], *(name for name, archived in there if archived)])
    return Rows(names, list(signatures), archived, header["shards"], Cells(_column(table[KEYS]), columns))


def _as_table(rows: Rows, root: Path) -> pa.Table:
    unread = sorted(rows.archived.difference(rows.names))  # archived runs without a row: damaged, or changed just now
    header = {"code": _code(), "root": os.path.realpath(root), "shards": rows.shards, "unread": unread}
    signatures = np.array(rows.signatures, np.int64).reshape(len(rows.names), len(SIGNATURE)).T
    columns: Mapping[str, Any] = {
        ARCHIVED: [name in rows.archived for name in rows.names],
        KEYS: _array(rows.cells.keys),
        **dict(zip(SIGNATURE, signatures, strict=True)),
        **{CELL + name: _array(column) for name, column in rows.cells.columns.items()},
    }
    return pa.table(columns).replace_schema_metadata({HEADER: json.dumps(header)})


def _array(column: Column) -> pa.DictionaryArray:
    codes = pa.array(column.codes, mask=column.codes < 0)
    return pa.DictionaryArray.from_arrays(codes, pa.array(column.texts, pa.string()))


def _column(column: pa.ChunkedArray) -> Column:
    array = column.combine_chunks()
    codes = numbers(pa.chunked_array([array.indices]), missing=-1)
    return Column(codes.astype(np.int32), array.dictionary.to_pylist())


@cache
def _code() -> str:
    """A hash of the code that makes rows of files: other code may make others."""
    store = Path(__file__).parent
    files = [*sorted(store.glob("*.py")), *(store.parent / "config" / f"{name}.py" for name in ("names", "plain_yaml"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _remove_old(directory: Path) -> None:
    """Keep the indexes that were written last, and remove what killed writers have left."""
    ages = {entry.path: entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(directory)}
    newest = sorted((path for path in ages if path.endswith(ENDING)), key=lambda path: -ages[path])
    left = [path for path, age in ages.items() if path.endswith(PARTIAL) and age < time.time() - ABANDONED]
    for path in [*newest[MOST_FILES:], *left]:
        os.unlink(path)
