"""Write runs that have ended into the archive of a store (`archive.py`): a few new files for a batch of runs."""

import errno
import hashlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from unstuck.files import is_own_file, replace_file
from unstuck.store.archive import RUN_ID, RUNS, SCHEMA, ArchivedRun, Kind, archived_runs, file_of, read_shard
from unstuck.store.parquet import read_parquet
from unstuck.store.reading import parse_spec, parse_status, read_text, version_of, warn_damaged

ROWS = 8192  # of a row group, at most, unless a run has more: what is read to get at one run
FILES: dict[Kind, str] = {"curves": "curve.parquet", "maps": "maps.parquet"}  # of a run directory


def archive_runs(directories: Iterable[Path], archive: Path) -> set[str]:
    """Write the finished runs of some run directories into new shards, one a family, and return their ids.

    Every run is read back and compared to the bit before its shard counts. A run that a shard cannot hold, such as one
    whose curve has an index of its own, is named in a warning and left out. The directories stay as they are.
    """
    records = []
    for directory in directories:
        try:
            records.append(_from_directory(directory))
        except (ValueError, TypeError, OSError) as e:
            warn_damaged(directory, str(e), "cannot be archived")
    _write(records, archive)
    return {record.run_id for record in records}


def merge_shards(archive: Path) -> None:
    """Put all shards of a family into one, without runs that another shard has with more steps."""
    before = sorted(archive.glob("*.parquet"))
    for path in before:
        if path.name.endswith(RUNS):
            read_shard(path, version_of(path))  # raises where it is damaged: then nothing is removed
    runs = archived_runs(archive).values()
    tables = ({kind: rows for kind in FILES if (rows := run.rows(kind)) is not None} for run in runs)
    records = [_Record(r.run_id, r.spec_text, r.status_text, t) for r, t in zip(runs, tables, strict=True)]
    kept = _write(records, archive)
    for path in before:
        if path not in kept:
            path.unlink()


def copy_shards(source: Path, target: Path) -> None:
    """Copy the shards that another archive does not have yet, the list of runs last: it is what makes a shard."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.parquet"), key=lambda path: path.name.endswith(RUNS)):
        if not (target / path.name).exists():
            replace_file(target / path.name, partial(shutil.copyfile, path))


@dataclass(frozen=True)
class _Record:
    """What a shard keeps of one run."""

    run_id: str
    spec: str
    status: str
    tables: dict[Kind, pa.Table]

    @property
    def family(self) -> str:
        """The task's name, and the model's unless that is the usual one."""
        spec = parse_spec(self.spec)
        task, model = (re.sub(r"\W+", "_", Path(str(spec[s].get("name", s))).stem)[:40] for s in ("task", "model"))
        return task if model == "transformer" else f"{task}-{model}"

    @property
    def types(self) -> dict[tuple[Kind, str], Any]:
        return {(kind, column.name): column.type for kind, table in self.tables.items() for column in table.schema}

    def archived(self, shard: str) -> ArchivedRun:
        """The run as it is read from a shard."""
        columns = {kind: self.tables[kind].column_names if kind in self.tables else None for kind in FILES}
        return ArchivedRun(self.run_id, self.spec, self.status, columns, shard)

    def rows(self, kind: Kind) -> pa.Table:
        """A table with the run's id beside every row."""
        table = self.tables[kind]
        return table.add_column(0, "run_id", pa.array([self.run_id] * len(table), pa.string()))


def _from_directory(directory: Path) -> _Record:
    tables: dict[Kind, pa.Table] = {}
    for kind, name in FILES.items():
        path = directory / name
        if not is_own_file(path):
            continue
        found = read_parquet(path)
        tables[kind] = found.replace_schema_metadata(None)
        if "run_id" in found.column_names or not same_bits(tables[kind].to_pandas(), found.to_pandas()):
            raise ValueError(f"{name} has an index, types or a column run_id of its own")
    if "curves" not in tables or not len(tables["curves"]):
        raise ValueError("it has no curve")
    spec, status = read_text(directory / "spec.yaml"), read_text(directory / "status.json")
    if parse_status(status)["state"] != "finished" or not RUN_ID.fullmatch(directory.name):
        raise ValueError("it is not a finished run with a plain name")
    return _Record(directory.name, spec, status, tables)


def same_bits(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Are two tables equal in columns, index, types and every bit of their values?"""
    if not (a.columns.equals(b.columns) and a.index.equals(b.index) and a.dtypes.equals(b.dtypes)):
        return False
    pairs = ((a[name].to_numpy(), b[name].to_numpy()) for name in a)
    return all(list(x) == list(y) if x.dtype == object else x.tobytes() == y.tobytes() for x, y in pairs)


def _write(records: Iterable[_Record], archive: Path) -> set[Path]:
    """Write a shard for each family, and for each set of types where columns of one name differ in that; returns the
    files of these shards."""
    archive.mkdir(parents=True, exist_ok=True)
    shards: list[tuple[str, dict[tuple[Kind, str], Any], list[_Record]]] = []
    for record in sorted(records, key=lambda record: record.run_id):
        for family, types, members in shards:
            if family == record.family and all(types.get(name, t) == t for name, t in record.types.items()):
                types |= record.types
                members.append(record)
                break
        else:
            shards.append((record.family, record.types, [record]))
    return {path for family, _, members in shards for path in _write_shard(archive, family, members)}


def _write_shard(archive: Path, family: str, records: list[_Record]) -> list[Path]:
    digest = hashlib.sha256(repr([(r.run_id, r.spec, r.status) for r in records]).encode()).hexdigest()
    shard = str(archive / f"{family}-{digest[:12]}")
    written = []
    for kind in FILES:
        tables = [record.rows(kind) for record in records if kind in record.tables]
        if tables:
            written.append(file_of(shard, kind))
            replace_file(written[-1], partial(_write_groups, _row_groups(tables)))
    runs = [record.archived(shard) for record in records]
    for record, run in zip(records, runs, strict=True):
        for kind, table in record.tables.items():
            rows = run.rows(kind)
            if rows is None or not same_bits(rows.to_pandas(), table.to_pandas()):
                raise OSError(errno.EIO, f"run {run.run_id} was not written as it was read", shard)
    listed = pa.Table.from_pylist([run.as_row() for run in runs], SCHEMA)
    replace_file(file_of(shard, "runs"), partial(_write_groups, [listed]))  # last: it is what makes a shard
    return [*written, file_of(shard, "runs")]


def _row_groups(tables: list[pa.Table]) -> list[pa.Table]:
    """Tables one under the other, each with the columns of all, in groups of whole tables."""
    columns = pa.unify_schemas([table.schema for table in tables]).empty_table()
    groups: list[list[pa.Table]] = []
    for table in tables:
        if not groups or sum(map(len, groups[-1])) + len(table) > ROWS:
            groups.append([columns])
        groups[-1].append(table)
    return [pa.concat_tables(group, promote_options="default") for group in groups]


def _write_groups(groups: list[pa.Table], path: str) -> None:
    with pq.ParquetWriter(path, groups[0].schema, compression="zstd", write_page_checksum=True) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=max(1, len(group)))
