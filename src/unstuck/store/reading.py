"""Read what a run directory holds, whoever wrote it: a damaged file is named in a warning and passed over."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from unstuck.config.plain_yaml import plain_yaml
from unstuck.files import is_own_file
from unstuck.store.parquet import TooLarge, read_parquet
from unstuck.store.result import Result

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Version = tuple[int, int]  # of a file: when it was last written, and its size

PASSED_OVER = "is damaged and passed over"
LARGEST_NUMBER = 10**18  # that a file of a run may hold
LARGEST_FILE = 5_000_000  # bytes of a status or a specification; as JSON it may take twenty times as much in memory


class Damaged(UserWarning):
    """A file of the store that cannot be read; the rest goes on."""


def warn_damaged(path: Path, why: str, what: str = PASSED_OVER) -> None:
    warnings.warn(f"{path} {what} ({why})", Damaged, stacklevel=3)


def version_of(path: Path | os.DirEntry[str]) -> Version:
    """What changes when a file is replaced."""
    file = path.stat()
    return file.st_mtime_ns, file.st_size


def read_status(path: Path) -> dict[str, Any] | None:
    """A state, a step and, where the run has ended, a `Result`; or None."""
    return _read(path, parse_status)


def read_spec(path: Path) -> dict[str, Any] | None:
    """Sections of plain values, as `RunSpec.as_dict` writes them; or None."""
    return _read(path, parse_spec)


def _read(path: Path, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any] | None:
    def read() -> dict[str, Any] | None:
        return parse(read_text(path)) if is_own_file(path) else None

    return attempt(read, path)


def read_text(path: Path) -> str:
    """What a file says, to the byte."""
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError("too large")
    return path.read_bytes().decode()


def attempt(read: Callable[[], T], path: Path, what: str = PASSED_OVER) -> T | None:
    """What `read` returns; None, and a warning that names `path`, where that is damaged."""
    try:
        return read()
    except (OSError, ValueError, RecursionError) as e:
        warn_damaged(path, reason(e), what)
        return None


def reason(error: Exception) -> str:
    """An exception in a few words: of a `Result` the field that is wrong, of a large file its size."""
    if isinstance(error, TooLarge):
        return str(error)
    if isinstance(error, ValidationError):
        return f"{'.'.join(map(str, error.errors()[0]['loc']))!r:.60} in its result"
    return type(error).__name__


def parse_status(text: str) -> dict[str, Any]:
    """A status from the text of status.json; a ValueError says what is wrong with it."""
    value = json.loads(text)
    if not isinstance(value, dict) or not isinstance(value.get("state"), str):
        raise ValueError("no state")
    step = value.get("step", 0)
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError("no step")
    _check_plain(value)
    if value.get("result") is not None:
        Result.model_validate(value["result"])
    return value


def parse_spec(text: str) -> dict[str, Any]:
    """A specification from the text of spec.yaml; a ValueError says what is wrong with it."""
    value = plain_yaml(text)
    sections = ("task", "model", "optim", "train")
    if not isinstance(value, dict) or not all(isinstance(value.get(s), dict) for s in sections):
        raise ValueError("sections are missing")
    _check_plain(value)
    return value


def _check_plain(value: Any) -> None:
    """Refuse all but texts, numbers of a reasonable size, lists and mappings."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError("a key that is no text")
            key.encode()  # half of a surrogate pair is no text that could be written again
            _check_plain(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_plain(inner)
    elif isinstance(value, str):
        value.encode()
    elif isinstance(value, int):
        if abs(value) >= LARGEST_NUMBER:
            raise ValueError("a number that is too large")
    elif value is not None and not isinstance(value, float):
        raise ValueError("neither text nor number")


def read_table(path: Path, needed: set[str]) -> "pd.DataFrame | None":
    """A table of numbers with the columns that are `needed`, and those of its rows that have a step; or None."""
    return checked_table(lambda: read_parquet(path).to_pandas() if is_own_file(path) else None, path, needed)


def checked_table(read: "Callable[[], pd.DataFrame | None]", path: Path, needed: set[str]) -> "pd.DataFrame | None":
    """The same from whatever `read` returns; a warning names `path` where that is damaged."""
    import pandas as pd  # a table of runs does without

    try:
        table = read()
        if table is None:
            return None
        if not needed <= set(table):
            raise ValueError("columns are missing")
        if not all(map(pd.api.types.is_numeric_dtype, table.dtypes)):
            table = table.apply(pd.to_numeric, errors="coerce")
        there = table["step"].notna().to_numpy()
        return table if there.all() else table[there]
    except Exception as e:  # pyarrow has many ways to say that a file is not its own
        warn_damaged(path, reason(e))
        return None


_READABLE: dict[Path, Version] = {}  # curves that have been read, as they were then


def has_rows(path: Path) -> bool:
    """Can a curve be read from `path`? One that could is read again only if the file has changed."""
    try:
        version = version_of(path)
    except OSError:
        return False
    if _READABLE.get(path) != version:
        table = read_table(path, {"step"})
        if table is None or table.empty:
            return False
        _READABLE[path] = version
    return True
