"""The table of a store's runs, looked at again and again: only runs whose files have changed are read again.

A run's row is made of its spec.yaml, its status.json and the archive. Each look is one pass over the store (`scan.py`)
that compares the signatures of these files with those at the time of reading. Rows are kept in memory, and between
processes in the user's cache directory (`index_file.py`).
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unstuck.store.archive import ARCHIVE, archived_runs, is_whole, shard_versions
from unstuck.store.cells import Cells
from unstuck.store.index_file import Rows, Shards, read_index, write_index
from unstuck.store.run_directory import RunDirectory
from unstuck.store.scan import FILES, MISSING, NO_FILES, Signature, scan

if TYPE_CHECKING:
    import pandas as pd

SETTLED = 2_000_000_000  # ns after which a file that is written again is sure to have another time, also on FAT
STATUS = len(MISSING) * (len(FILES) - 1)  # of a signature: when the status was last written
UNKNOWN: Signature = ()  # of a run that is read again at the next look
LEAST_NEW, SHARE_NEW = 64, 1 / 200  # new rows, and their share of all, for which the index is written anew
REMEMBERED = 1000  # removed runs, for those who ask what has changed


@dataclass(frozen=True)
class RunTable:
    """The rows of all runs at one time. `stamps` has, for each row, the version in which it last changed."""

    cells: Cells
    names: list[str]
    version: int
    stamps: NDArray[np.int64]
    removed: list[tuple[int, str]]  # the last ones, with the version that no longer has them
    interrupted: frozenset[str]  # runs that say they are running, but no process works on them

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """One row a run: its keys (`task.T` is also called `T`), status, plateau_steps, steps, seconds."""
        return self.cells.frame()

    def changes(self, since: int) -> tuple[NDArray[np.int64], list[str]] | None:
        """The places of rows that have changed since a version, and the runs that are gone; None if it is too old."""
        if not 0 < since <= self.version or (len(self.removed) >= REMEMBERED and since < self.removed[0][0]):
            return None
        return np.flatnonzero(self.stamps > since), [name for version, name in self.removed if version > since]


NO_RUNS = RunTable(Cells.of([]), [], 0, np.array([], np.int64), [], frozenset())


@dataclass
class RunIndex:
    """The runs of a directory; one thread at a time may `look`. Without `links`, linked directories are left out."""

    root: Path
    links: bool = True
    _rows: Rows | None = None
    _table: RunTable = NO_RUNS
    _unwritten: int = 0

    def look(self) -> RunTable:
        """The runs as they are now; the same object as before if nothing has changed."""
        before = read_index(self.root) if self._rows is None else self._rows
        rows, changed = self._read(before)
        if self._unwritten > max(LEAST_NEW, SHARE_NEW * len(rows.names)):
            self._write(rows)
        gone = set(self._table.names).difference(rows.names) if rows is not before else set()
        self._rows, self._table = rows, self._next_table(rows, changed, gone)
        return self._table

    def latest(self) -> str | None:
        """The run whose status was last written, of those that are not archived."""
        rows = self._rows
        known = [] if rows is None else zip(rows.signatures, rows.names, strict=True)
        times = [(s[STATUS] if s else self._written(name), name) for s, name in known if s != NO_FILES]
        return max(times)[1] if times else None

    def _written(self, name: str) -> int:
        """When the status of a run was last written, which may still change."""
        try:
            return (self.root / name / FILES[-1]).lstat().st_mtime_ns
        except OSError:
            return 0

    def _read(self, before: Rows) -> tuple[Rows, set[str]]:
        """The rows of all runs, and the names of those that are others than before."""
        now = time.time_ns()
        there = self._listed(before)
        kept = there.unchanged(before)
        if len(kept) == len(there.signatures) == len(before.names) and there.shards == before.shards:
            return before, set()
        unread = sorted(there.signatures.keys() - {before.names[i] for i in kept})
        read = [(name, row) for name in unread if (row := RunDirectory(self.root / name).recorded_row()) is not None]
        new_names, new = [name for name, _ in read], Cells.of([row for _, row in read])
        names, cells = _merged(before, kept, new_names, new)
        settled = [_settled(there.signatures[name], now) for name in names]
        fresh = set(new_names)
        self._unwritten += sum(name in fresh and sign != UNKNOWN for name, sign in zip(names, settled, strict=True))
        return Rows(names, settled, there.archived, there.shards, cells), _different(before, new_names, new)

    def _listed(self, before: Rows) -> "_Listing":
        """What the directory and its archive hold now."""
        archive = self.root / ARCHIVE
        live, shards = scan(self.root, links=self.links), [[Path(n).name, *v] for n, v in shard_versions(archive)]
        if shards == before.shards:
            archived, changed = before.archived, frozenset[str]()
        else:
            archived = frozenset(archived_runs(archive))
            changed = archived | before.archived
        return _Listing(dict.fromkeys(archived, NO_FILES) | live, archived, shards, changed)

    def _write(self, rows: Rows) -> None:
        """Keep those rows that count the next time."""
        places = np.array([i for i, signature in enumerate(rows.signatures) if signature != UNKNOWN], np.int64)
        shards = rows.shards if is_whole(self.root / ARCHIVE) else None  # else the warning would come once only
        names, signatures = ([column[i] for i in places] for column in (rows.names, rows.signatures))
        write_index(self.root, Rows(names, signatures, rows.archived, shards, rows.cells.select(places)))
        self._unwritten = 0

    def _next_table(self, rows: Rows, different: set[str], gone: set[str]) -> RunTable:
        last = self._table
        status = rows.cells.columns.get("status")
        running = [] if status is None else status.rows_with('"running"').tolist()
        places = [i for i in running if not RunDirectory(self.root / rows.names[i]).is_locked()]
        interrupted = frozenset(rows.names[i] for i in places)
        changed = different | (interrupted ^ last.interrupted)
        if last is not NO_RUNS and not changed and not gone:
            return last
        cells = rows.cells
        if status is not None and places:
            cells = cells.assign("status", status.replace('"running"', '"interrupted"', np.array(places)))
        version = last.version + 1
        removed = [*last.removed, *((version, name) for name in sorted(gone))][-REMEMBERED:]
        stamps = _stamps(last, rows.names, changed, version)
        return RunTable(cells, list(rows.names), version, stamps, removed, interrupted)


@dataclass(frozen=True)
class _Listing:
    """The runs of a store by name, with the signatures of their files; `changed` are those whose shard has changed."""

    signatures: Mapping[str, Signature | None]
    archived: frozenset[str]
    shards: Shards
    changed: frozenset[str]

    def unchanged(self, before: Rows) -> list[int]:
        """The places of rows that count as they were read."""
        known = enumerate(zip(before.names, before.signatures, strict=True))
        now, changed = self.signatures, self.changed
        return [i for i, (name, old) in known if now.get(name, MISSING) == old and name not in changed]


def _merged(before: Rows, kept: list[int], names: list[str], new: Cells) -> tuple[list[str], Cells]:
    """Rows that are kept and new ones, in the order of their names."""
    everyone = [*(before.names[i] for i in kept), *names]
    order = sorted(range(len(everyone)), key=everyone.__getitem__)
    cells = before.cells.select(np.array(kept, np.int64)).join(new).select(np.array(order, np.int64))
    return [everyone[i] for i in order], cells


def _different(before: Rows, names: list[str], new: Cells) -> set[str]:
    """The names of rows that are others than before."""
    places = {name: i for i, name in enumerate(before.names)}
    found = enumerate(names)
    return {n for i, n in found if n not in places or new.row(i) != before.cells.row(places[n])}


def _stamps(last: RunTable, names: Iterable[str], changed: set[str], version: int) -> NDArray[np.int64]:
    if last is NO_RUNS:
        return np.full(len(list(names)), version)
    old = dict(zip(last.names, last.stamps.tolist(), strict=True))
    return np.array([version if name in changed else old[name] for name in names], np.int64)


def _settled(signature: Signature | None, now: int) -> Signature:
    """The signature, if a later change of the files is sure to change it."""
    if signature is None or max(signature) > now - SETTLED:
        return UNKNOWN
    return signature
