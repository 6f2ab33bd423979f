"""Read a table of plain numbers without pandas, whose import takes longer than a forecast.

Plain is what `unstuck` and most scripts write: a column `step` whose numbers rise, numbers or nothing in all cells, and
names that are used as they are. `curve_files.py` reads everything else, and would read these the same.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstuck.arrays import Columns
from unstuck.columns import OLD_ENTROPY, STEP, without_prefix

#: Names of the step, the first that a curve has counts. `_step` of W&B counts calls of its logger.
STEP_NAMES = (STEP, "global_step", "iter", "iteration", "steps", "_step")
STEP_ENDS = re.compile(r"[/._]global_step$|^(train|trainer|watch|unstuck)/(step|iter|iteration)$")  # as trainers log it
MAX_BYTES = 2**29  # of a file, which is read at once and then takes some five times as much memory
LARGEST = 5_000_000  # bytes of a CSV: of larger ones pandas' parser saves more time than its import takes
NAME = re.compile(r"[^\s\"]+")  # of a column of a CSV, as it is typed
PLAIN = re.compile(r"[0-9eE+\-.,\nnaN]*")  # of the cells of a CSV, where nan is the only word


def plain_columns(path: Path) -> Columns | None:
    """The columns of a plain CSV or Parquet file, the step first; None for any other file."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        kind = path.suffix.lower()
        found = _csv(path) if kind == ".csv" else _parquet(path) if kind == ".parquet" else None
    except Exception:  # whoever reads it with pandas says what is wrong
        return None
    if found is None or not all(map(_is_plain, found)) or not _rises(found.get(STEP)):
        return None
    measured = {name: values for name, values in found.items() if name != STEP and not np.isnan(values).all()}
    return {STEP: found[STEP].astype(float), **measured}


def _is_plain(name: str) -> bool:
    """Is a name used as it is?"""
    known = name == STEP or not (name.lower() in STEP_NAMES or STEP_ENDS.search(name.lower()))
    return known and without_prefix(name) == name and not name.startswith(OLD_ENTROPY)


def _rises(steps: NDArray[Any] | None) -> bool:
    if steps is None or not len(steps):
        return False
    return bool(np.isfinite(steps).all() and steps[0] >= 0 and (np.diff(steps) > 0).all())


def _csv(path: Path) -> Columns | None:
    if path.stat().st_size > LARGEST:
        return None
    header, _, body = path.read_bytes().decode("ascii").replace("\r\n", "\n").partition("\n")
    names = header.split(",")
    if not PLAIN.fullmatch(body) or len(set(names)) < len(names) or not all(map(NAME.fullmatch, names)):
        return None
    rows = [line.split(",") for line in body.split("\n") if line]
    if any(len(row) != len(names) for row in rows):
        return None
    cells = zip(names, zip(*rows, strict=True), strict=True)
    return {name: np.array([float(cell) if cell else math.nan for cell in column]) for name, column in cells}


def _parquet(path: Path) -> Columns | None:
    from pyarrow import types

    from unstuck.store.parquet import numbers, read_parquet  # with pyarrow, which a CSV does not need

    table = read_parquet(path)
    about = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}"))
    index = [name for name in about.get("index_columns", []) if isinstance(name, str)]  # a range is no column
    if index or len(set(table.column_names)) < table.num_columns:
        return None
    if not all(types.is_integer(kind) or types.is_floating(kind) for kind in table.schema.types):
        return None
    return {name: numbers(table[name]) for name in table.column_names}
