"""Runs that have ended, many to a file: `archive/<family>-<digest>` in a store, three Parquet files to a shard.

    .runs.parquet     a row a run: run_id, spec and status (the text of spec.yaml and status.json), and the names of its
                      columns, in their order, in `curves` and in `maps` (null: it has none)
    .curves.parquet   the rows of all curves, with the id of their run; a run lies in one row group
    .maps.parquet     likewise the attention maps, if a run has any

A shard is written once and never changed (`shards.py`), so that what has been read of it can be kept for as long as the
process lives. Reading parses Parquet, JSON and YAML, and follows no links.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from unstuck.files import is_own_file
from unstuck.store.parquet import read_parquet, row_groups
from unstuck.store.reading import (
    Version,
    attempt,
    checked_table,
    parse_spec,
    parse_status,
    reason,
    version_of,
    warn_damaged,
)

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["curves", "maps"]
KINDS: tuple[Kind, ...] = ("curves", "maps")

ARCHIVE = "archive"  # the directory of shards in a store
RUNS = ".runs.parquet"  # how the names of the files with a row a run end
NAMES = pa.list_(pa.string())
SCHEMA = pa.schema({"run_id": pa.string(), "spec": pa.string(), "status": pa.string(), "curves": NAMES, "maps": NAMES})
LARGEST_KEPT = 50_000_000  # bytes of a row group that is kept for the next run
RUN_ID = re.compile(r"[^\W.][\w.-]{0,199}")  # a name in a directory, and nowhere else


def file_of(shard: str, kind: Kind | Literal["runs"]) -> Path:
    return Path(f"{shard}.{kind}.parquet")


@dataclass(frozen=True)
class ArchivedRun:
    """One run of a shard."""

    run_id: str
    spec_text: str
    status_text: str
    columns: Mapping[Kind, list[str] | None]
    shard: str  # the path of its files without their endings

    @classmethod
    def from_row(cls, row: Mapping[str, Any], shard: str) -> "ArchivedRun":
        """From a row of `runs`; raises where it is not one of a run."""
        if not RUN_ID.fullmatch(row["run_id"]) or row["spec"] is None or row["status"] is None:
            raise ValueError("a run without an id, a specification or a status")
        return cls(row["run_id"], row["spec"], row["status"], {kind: row[kind] for kind in KINDS}, shard)

    def as_row(self) -> dict[str, Any]:
        texts = {"run_id": self.run_id, "spec": self.spec_text, "status": self.status_text}
        return {**texts, **{str(kind): names for kind, names in self.columns.items()}}

    def spec(self) -> dict[str, Any] | None:
        return self._parsed(parse_spec, self.spec_text)

    def status(self) -> dict[str, Any] | None:
        return self._parsed(parse_status, self.status_text)

    def _parsed(self, parse: Callable[[str], dict[str, Any]], text: str) -> dict[str, Any] | None:
        return attempt(
            lambda: _copied(_once(parse, text)), file_of(self.shard, "runs"), f"holds the damaged run {self.run_id}"
        )

    @property
    def result(self) -> dict[str, Any] | None:
        """What the run came to, as its status says it."""
        return (self.status() or {}).get("result")

    @property
    def steps(self) -> int:
        """Steps that were trained; -1 where there is no result."""
        return -1 if (result := self.result) is None else int(result["steps"])

    def has_rows(self) -> bool:
        """Can its curve be read? Where not, a warning says so."""
        try:
            return self._group("curves").num_rows > 0
        except Exception as e:  # pyarrow has many ways to say that a file is damaged
            warn_damaged(file_of(self.shard, "curves"), reason(e))
            return False

    def rows(self, kind: Kind) -> pa.Table | None:
        """The rows of the run with its own columns, as they were written; raises where they are damaged."""
        names = self.columns[kind]
        if names is None:
            return None
        group = self._group(kind)
        return group.select(names).filter(pc.equal(group["run_id"], self.run_id))

    def table(self, kind: Kind, needed: set[str]) -> "pd.DataFrame | None":
        """The same as `reading.read_table` of the run's own file."""

        def read() -> "pd.DataFrame | None":
            rows = self.rows(kind)
            return None if rows is None else rows.to_pandas()

        return checked_table(read, file_of(self.shard, kind), needed)

    def _group(self, kind: Kind) -> pa.Table:
        path = file_of(self.shard, kind)
        if not is_own_file(path):
            raise FileNotFoundError("the file is missing")
        version = version_of(path)
        place = _row_groups(path, version).get(self.run_id)
        if place is None:
            raise ValueError("the run is missing")
        group = _row_group(path, version, place)
        if group.nbytes > LARGEST_KEPT:
            _row_group.cache_clear()
        return group


@dataclass(frozen=True)
class _Archive:
    """What all shards of a directory hold, as their files were then."""

    shards: tuple[tuple[str, Version], ...]
    runs: Mapping[str, ArchivedRun]
    is_whole: bool  # could all shards be read?


_KNOWN: dict[Path, _Archive] = {}


def archived_runs(directory: Path) -> Mapping[str, ArchivedRun]:
    """The runs of all shards in a directory, by id; of a run that several shards hold, the one with the most steps. A
    damaged shard is named in a warning when it is first read, and the rest goes on."""
    return _archive(directory).runs


def is_whole(directory: Path) -> bool:
    """Can all shards in a directory be read?"""
    return _archive(directory).is_whole


def _archive(directory: Path) -> _Archive:
    shards = tuple(shard_versions(directory))
    known = _KNOWN.get(directory)
    if known is None or known.shards != shards:
        known = _KNOWN[directory] = _read_shards(shards)
    return known


def shard_versions(directory: Path) -> Iterable[tuple[str, Version]]:
    """The files that list the runs of a shard, by name, and how they are now; links are left out."""
    if not directory.is_symlink() and directory.is_dir():
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.endswith(RUNS) and entry.is_file(follow_symlinks=False):
                    yield entry.path, version_of(entry)


def _read_shards(shards: tuple[tuple[str, Version], ...]) -> _Archive:
    index: dict[str, ArchivedRun] = {}
    whole = True
    for name, version in shards:
        path = Path(name)
        try:
            runs = read_shard(path, version)
        except Exception as e:  # pyarrow has many ways to say that a file is not its own
            warn_damaged(path, reason(e))
            whole = False
            continue
        for run in runs:
            if run.run_id not in index or run.steps > index[run.run_id].steps:
                index[run.run_id] = run
    return _Archive(shards, index, whole)


@lru_cache(maxsize=4096)
def _once(parse: Callable[[str], dict[str, Any]], text: str) -> dict[str, Any]:
    return parse(text)


def _copied(value: Any) -> Any:
    """Plain values, for a caller to change; ten times as fast as `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


@lru_cache(maxsize=256)
def read_shard(path: Path, version: Version) -> list[ArchivedRun]:
    """The runs of a shard, by the file that lists them; raises where that is damaged."""
    listed = read_parquet(path, SCHEMA.names).select(SCHEMA.names).cast(SCHEMA)
    if len(listed["run_id"].unique()) < len(listed):
        raise ValueError("a run that is listed twice")
    rows = listed.to_pylist()
    return [ArchivedRun.from_row(row, str(path).removesuffix(RUNS)) for row in rows]


@lru_cache(maxsize=64)
def _row_groups(path: Path, version: Version) -> dict[str, int]:
    """In which row group each run lies."""
    ids = ((i, read_parquet(path, ["run_id"], [i])["run_id"]) for i in range(row_groups(path)))
    return {run_id: i for i, column in ids for run_id in column.unique().to_pylist()}


@lru_cache(maxsize=8)
def _row_group(path: Path, version: Version, place: int) -> pa.Table:
    return read_parquet(path, None, [place])
