"""Read a Parquet file that anybody may have written: what it would take in memory is found out before it is read.

A column of one repeated value takes next to nothing on disk, so that 2 MB may stand for 10 GB. Rows and types are in
the file's metadata. Texts are read as a dictionary and the places where its entries stand, so that their whole length
is known before they are written out.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

#: Bytes that a table may take while it is read. A curve of 60,000 rows with 1,000 columns takes as much, and so do the
#: rows about 100,000 archived runs.
LARGEST_TABLE = 1_000_000_000
NUMBER = 16  # bytes of a number, once for Arrow and once for pandas
TEXT = 56  # bytes of a text in Python beside its characters
_NAMES = {
    "double": "float64",
    "float": "float32",
    "halffloat": "float16",
}  # Arrow's types by NumPy's names
BYTES = "BYTE_ARRAY"  # what Parquet calls texts


class TooLarge(ValueError):
    """A table that would take more memory than `LARGEST_TABLE`."""


def read_parquet(path: Path, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> pa.Table:
    """The table in `path`, or some columns or row groups of it. Raises `TooLarge`, ValueError for columns of records
    and for what is no file, and what pyarrow raises for a file that is damaged."""
    if not path.is_file():  # to open a pipe waits for its other end, deaf to Ctrl-C
        raise ValueError("no plain file")
    metadata = pq.read_metadata(path)
    schema = metadata.schema.to_arrow_schema()
    if any(map(_is_record, schema.types)):
        raise ValueError("a column holds records")
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    chosen = list(range(metadata.num_row_groups) if groups is None else groups)
    wanted = [i for i, leaf in enumerate(leaves) if columns is None or leaf.path.partition(".")[0] in columns]
    texts = [leaves[i].path for i in wanted if leaves[i].physical_type == BYTES]
    _check_size(sum(_claimed(metadata.row_group(g), leaves, wanted) for g in chosen))
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, page_checksum_verification=True) as file:
        table = file.read_row_groups(chosen, columns)
    if not texts:
        return table
    _check_size(sum(map(_length, table.columns)))
    return table.cast(pa.schema([schema.field(name) for name in table.column_names], table.schema.metadata))


def numbers(column: pa.ChunkedArray, missing: float = math.nan) -> NDArray[Any]:
    """A column of numbers or truth values as an array, with `missing` where there is none. The same as pyarrow's own
    `to_numpy`, which imports pandas."""
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    valid, data = array.buffers()
    rows = slice(array.offset, array.offset + len(array))
    if pa.types.is_boolean(array.type):
        values = _bits(data)[rows].astype(bool)
    else:
        values = np.frombuffer(data or b"", np.dtype(_NAMES.get(str(array.type), str(array.type))))[rows]
    if not array.null_count:
        return values
    known = values if missing == missing or values.dtype.kind == "f" else values.astype(float)
    return np.where(_bits(valid)[rows].astype(bool), known, np.array(missing, known.dtype))


def _bits(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(buffer or b"", np.uint8), bitorder="little")


def row_groups(path: Path) -> int:
    """The number of row groups."""
    return int(pq.read_metadata(path).num_row_groups)


def _is_record(kind: pa.DataType) -> bool:
    return pa.types.is_nested(kind) and not (pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type))


def _check_size(size: float) -> None:
    if size > LARGEST_TABLE:
        most = f"at most {LARGEST_TABLE / 1e6:,.0f} MB are given"
        raise TooLarge(f"it would take {size / 1e6:,.0f} MB of memory, and {most}")


def _claimed(group: Any, leaves: Sequence[Any], wanted: Sequence[int]) -> int:
    """Bytes of a row group by its metadata; of texts those of the dictionary and of the places."""
    size = 0
    for i in wanted:
        column = group.column(i)
        size += max(group.num_rows, column.num_values) * max(NUMBER, 2 * leaves[i].length)
        if leaves[i].physical_type == BYTES:
            size += column.total_uncompressed_size
            if "DELTA_BYTE_ARRAY" in column.encodings:  # each text may repeat the one before
                size += column.num_values * column.total_uncompressed_size
    return size


def _length(column: pa.ChunkedArray) -> int:
    """Bytes of a column with its texts written out."""
    return sum(map(_array_length, column.chunks))


def _array_length(array: pa.Array) -> int:
    if pa.types.is_list(array.type):
        return TEXT * len(array) + _array_length(array.flatten())
    if not pa.types.is_dictionary(array.type) or pa.types.is_primitive(array.type.value_type):
        return NUMBER * len(array)
    lengths = pc.cast(pc.binary_length(array.dictionary), pa.int64())
    return TEXT * len(array) + (pc.sum(lengths.take(array.indices)).as_py() or 0)
