"""The tables that others log: CSV and Parquet in any form, files of TensorBoard, W&B and Hugging Face's Trainer.

`sources.py` reads tables of plain numbers without pandas, and all others here. Reading runs no code of whoever wrote
the files: tables, numbers and protocol buffers only.
"""

import json
import math
import re
import struct
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.columns import is_loss, place, without_prefix
from unstuck.errors import BadInput, printable
from unstuck.extras import require
from unstuck.files import is_own_file

from .plain_files import MAX_BYTES, STEP_ENDS, STEP_NAMES

TRAINER_STATE = "trainer_state.json"  # of Hugging Face's Trainer, in each checkpoint
MOST_CELLS = 50_000_000  # of a log that names its columns in each row: 400 MB as numbers
THOUSANDS = re.compile(r"\s*[1-9]\d{0,2}(,\d{3})+(\.0*)?\s*")


def logged_table(path: Path) -> pd.DataFrame:
    """The table of a file or a directory: a row per step, with all columns that are numbers."""
    return _by_step(_directory(path) if path.is_dir() else _file(path), path)


def _file(path: Path) -> pd.DataFrame:
    if not path.is_file():  # to open a pipe waits for its other end
        raise BadInput("SOURCE", str(path), "a plain file or a directory")
    if path.stat().st_size > MAX_BYTES:
        raise BadInput("SOURCE", str(path), f"a file of at most {MAX_BYTES // 2**20} MB")
    if path.suffix.lower() in (".csv", ".parquet"):
        return _table(path)
    if path.suffix == ".wandb":
        return _wandb(path)
    if "tfevents" in path.name:
        return _tensorboard(path)
    if path.suffix == ".json":
        return _trainer_state(path)
    kinds = f".csv, .parquet, .wandb, {TRAINER_STATE} or TensorBoard event file"
    raise BadInput("SOURCE", str(path), f"a run directory, {kinds}")


def _directory(path: Path) -> pd.DataFrame:
    if is_own_file(path / "curve.parquet"):
        return _file(path / "curve.parquet")
    if events := [*path.glob("*tfevents*")]:
        if odd := next((file for file in events if not file.is_file()), None):
            raise BadInput("SOURCE", str(odd), "a plain file")
        return _tensorboard(path)
    if parts := _wandb_parts(path):
        return pd.concat([_file(part) for part in parts], ignore_index=True)
    if state := _last_trainer_state(path):
        return _file(state)
    from unstuck.store.store import Store

    runs = [run.path.name for run in Store(path)]
    if runs:
        raise BadInput("SOURCE", str(path), f"one run of this store, such as {path / runs[-1]}")
    waits = " (it has begun; the curve is written with its first checkpoint)" if (path / "status.json").exists() else ""
    kinds = f"curve.parquet, TensorBoard events, a .wandb file or {TRAINER_STATE}"
    raise BadInput("SOURCE", str(path), f"a directory with {kinds}{waits}")


def _wandb_parts(path: Path) -> list[Path]:
    """The .wandb files of one run, oldest first: of the directory itself, or of the last run in a folder `wandb`, whose
    directories are called [offline-]run-DATE_TIME-ID; a run that was resumed has several."""
    if own := sorted(path.glob("*.wandb")):
        return own[-1:]
    folder = path if path.name == "wandb" or not (path / "wandb").is_dir() else path / "wandb"
    found = sorted(folder.glob("*run-*/*.wandb"), key=lambda file: file.parent.name.removeprefix("offline-"))
    latest = sorted((folder / "latest-run").glob("*.wandb")) or found
    if not latest:
        return []
    mine = [file for file in found if file.name == latest[-1].name] or latest[-1:]
    if others := len({file.name for file in found} - {latest[-1].name}):
        message = f"{folder} holds {others} other runs; the last one, {mine[-1].parent.name}, is read"
        warnings.warn(message, UserWarning, stacklevel=4)
    return mine


def _last_trainer_state(path: Path) -> Path | None:
    """In the directory itself, or else in its last checkpoint."""
    if (path / TRAINER_STATE).is_file():
        return path / TRAINER_STATE
    found = path.glob(f"checkpoint-*/{TRAINER_STATE}")
    numbered = {int(number): file for file in found if (number := file.parent.name.split("-")[-1]).isdecimal()}
    return numbered[max(numbered)] if numbered else None


def _trainer_state(path: Path) -> pd.DataFrame:
    """The log of Hugging Face's Trainer: a list of rows, each with a step and what was logged then."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as e:
        raise BadInput("SOURCE", str(path), f"JSON that can be read ({type(e).__name__})") from e
    log = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(log, list) or not all(isinstance(row, dict) for row in log):
        raise BadInput(
            "SOURCE", str(path), "JSON with log_history, a list of rows, as Hugging Face's Trainer writes it"
        )
    return _frame([_scalars(row) for row in log], path)


def _scalars(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row of JSON, whose names may hold half of a surrogate pair."""
    return {printable(k): _real(v) for k, v in row.items() if isinstance(v, (int, float))}


def _real(value: float) -> float:
    """JSON has whole numbers of any size."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _frame(rows: Sequence[dict[str, float]], source: Path) -> pd.DataFrame:
    """A table of rows that need not have the same columns: 20,000 rows of 600 kB with a column each would take 3 GB."""
    cells = len(rows) * len(set().union(*rows))
    if cells > MOST_CELLS:
        raise BadInput("SOURCE", str(source), f"a log of at most {MOST_CELLS:,} cells; this one has {cells:,}")
    return pd.DataFrame(rows)


def _table(path: Path) -> pd.DataFrame:
    from unstuck.store.parquet import read_parquet  # with pyarrow, which a CSV does not need

    try:
        table = pd.read_csv(path) if path.suffix.lower() == ".csv" else read_parquet(path).to_pandas()
        if path.suffix.lower() == ".csv" and len(table.columns) == 1 and (sep := _separator(str(table.columns[0]))):
            table = pd.read_csv(path, sep=sep)
    except Exception as e:
        raise BadInput("SOURCE", str(path), f"a table that can be read ({type(e).__name__})") from e
    return table


def _separator(header: str) -> str:
    """The separator of a header that has no commas."""
    return next((sep for sep in (";", "\t") if sep in header), "")


def _tensorboard(source: Path) -> pd.DataFrame:
    """The scalars of an event file, or of all in a directory; newer writers store them as tensors of one number."""
    require("trackers", "reading TensorBoard files", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(source), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    rows: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            rows.setdefault(event.step, {"step": event.step})[_name(tag)] = event.value
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            value = make_ndarray(event.tensor_proto)
            if value.size == 1 and value.dtype.kind in "fiu":
                rows.setdefault(event.step, {"step": event.step})[_name(tag)] = float(value.item())
    return _frame(list(rows.values()), source)


def _name(tag: str) -> str:
    return without_prefix(tag).replace("/", "_")


def _wandb(path: Path) -> pd.DataFrame:
    require("trackers", "reading Weights & Biases files", "wandb")
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from wandb.proto import wandb_internal_pb2

    rows = []
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]
        try:
            record.ParseFromString(data)
            history = record.history.item if record.WhichOneof("record_type") == "history" else ()
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in history}
        except (DecodeError, ValueError, RecursionError) as e:
            raise BadInput("SOURCE", str(path), f"a .wandb file that can be read ({type(e).__name__})") from e
        if items:
            rows.append(_scalars(items))
    return _frame(rows, path)


WANDB_HEADER, BLOCK, RECORD_HEADER = 7, 32_768, 7
FULL, FIRST, LAST = 1, 2, 4


def _records(content: bytes) -> Iterator[bytes]:
    """The records of a .wandb file. It is a LevelDB log after a header: blocks of 32 KB with pieces that have a
    checksum, a length and a type; a record that does not fit continues in the next block."""
    at, parts = WANDB_HEADER, b""
    while at + RECORD_HEADER <= len(content):
        left = BLOCK - at % BLOCK
        if left < RECORD_HEADER:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        piece = content[at + RECORD_HEADER : at + RECORD_HEADER + length]
        at += RECORD_HEADER + length
        if len(piece) < length or kind == 0:  # still being written
            return
        parts = piece if kind in (FULL, FIRST) else parts + piece
        if kind in (FULL, LAST):
            yield parts


def _by_step(table: pd.DataFrame, source: str | Path) -> pd.DataFrame:
    table = _without_prefixes(table.rename(columns=str))
    name = _step_column(table)
    if name is None or table.empty:
        raise BadInput("SOURCE", str(source), f"a curve with rows and a column called {' or '.join(STEP_NAMES)}")
    numbers = table.apply(pd.to_numeric, errors="coerce")
    steps = _steps(table[name])
    if name != "_step" and "_step" in numbers:  # rows of other logger calls lack the trainer's step
        order = numbers["_step"].sort_values(kind="stable").index
        steps = steps.fillna(steps[order].ffill())
    there = steps.map(lambda x: math.isfinite(x) and x >= 0)
    if not there.any():
        raise BadInput("SOURCE", str(source), f"a curve with numbers in its column {name}")
    measured = numbers.drop(columns=[c for c in numbers if c == name or c.lower() in STEP_NAMES])
    lost = ~there & (measured.notna().any(axis=1) | table[name].notna())
    if lost.any():
        message = f"{lost.sum()} of {len(table)} rows have no step in their column {name}, such as "
        warnings.warn(f"{message}{str(table.loc[lost, name].iloc[0])!r}; they are left out", UserWarning, stacklevel=3)
    numbers = numbers.assign(step=steps)[there]
    _warn_of_text(table[there], numbers)
    numbers = numbers.dropna(axis=1, how="all")
    _warn_of_epochs(numbers)
    return numbers.groupby("step", as_index=False).last()  # of each column: loggers may write a step in several rows


def _without_prefixes(table: pd.DataFrame) -> pd.DataFrame:
    """Heads' columns without the prefix of a logger. Where two would have the same name, they keep theirs."""
    bare = [without_prefix(c) for c in table]
    count = Counter(bare)
    return table.set_axis([b if count[b] == 1 else c for b, c in zip(bare, table, strict=True)], axis=1)


def _warn_of_text(table: pd.DataFrame, numbers: pd.DataFrame) -> None:
    """Warn of cells of a loss or a head's measure that hold text, such as 0,55 with a comma: they are left out."""
    for name in (c for c in numbers if is_loss(c) or place(c)):
        text = table.loc[numbers[name].isna(), name].dropna()
        if len(text):
            count = f"{len(text)} of {len(table)} cells of column {name} hold text"
            warnings.warn(f"{count} such as {str(text.iloc[0])!r}, not a number; they are left out", stacklevel=4)


def _warn_of_epochs(numbers: pd.DataFrame) -> None:
    """Warn where steps start again each epoch: most rows would be lost silently."""
    again = max((numbers.loc[numbers[c].notna(), "step"].duplicated().sum() for c in numbers if c != "step"), default=0)
    if again > len(numbers) / 10:
        message = f"{again} of {len(numbers)} rows repeat a step; only the last row of each step is used"
        warnings.warn(f"{message}. Steps must not start again each epoch", UserWarning, stacklevel=4)


def _step_column(table: pd.DataFrame) -> str | None:
    lower = {c.lower(): c for c in reversed(list(table))}
    trainers = [c for c in lower if STEP_ENDS.search(c)]
    return next((lower[c] for c in (*STEP_NAMES[:2], *trainers, *STEP_NAMES[2:]) if c in lower), None)


def _steps(column: pd.Series) -> pd.Series:
    """As numbers; 12,000 is one, since steps have no decimals."""
    if not pd.api.types.is_numeric_dtype(column):
        column = column.map(lambda x: x.replace(",", "") if isinstance(x, str) and THOUSANDS.fullmatch(x) else x)
    return pd.to_numeric(column, errors="coerce").astype(float)
