"""Read what a run directory holds, whoever wrote it: a damaged file is named in a warning and passed over."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from unstuck.config.plain_yaml import plain_yaml
from unstuck.store.result import Result

LARGEST_NUMBER = 10**18  # that a file of a run may hold
LARGEST_FILE = 20_000_000  # bytes of a status or a specification


class Damaged(UserWarning):
    """A file of the store that cannot be read; the rest goes on."""


def warn_damaged(path: Path, why: str, what: str = "is damaged and passed over") -> None:
    warnings.warn(f"{path} {what} ({why})", Damaged, stacklevel=3)


def is_own_file(path: Path) -> bool:
    """Is it a file of its directory? A link may lead out of it, to what is not meant to be read."""
    return path.is_file() and not path.is_symlink()


def read_status(path: Path) -> dict[str, Any] | None:
    """A state, a step and, where the run has ended, a `Result`; or None."""
    return _read(path, json.loads, _check_status)


def read_spec(path: Path) -> dict[str, Any] | None:
    """Sections of plain values, as `RunSpec.as_dict` writes them; or None."""
    return _read(path, plain_yaml, _check_spec)


def _read(path: Path, parse: Callable[[str], Any], check: Callable[[Any], None]) -> dict[str, Any] | None:
    try:
        if not is_own_file(path):
            return None
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError("too large")
        value = parse(path.read_text(encoding="utf-8"))
        check(value)
    except (OSError, ValueError, RecursionError) as e:
        warn_damaged(path, _reason(e))
        return None
    return value


def _reason(error: Exception) -> str:
    """An exception in a few words: of a `Result` the field that is wrong."""
    if isinstance(error, ValidationError):
        return f"{'.'.join(map(str, error.errors()[0]['loc']))!r:.60} in its result"
    return type(error).__name__


def _check_status(value: Any) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("state"), str):
        raise ValueError("no state")
    step = value.get("step", 0)
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError("no step")
    _check_plain(value)
    if value.get("result") is not None:
        Result.model_validate(value["result"])


def _check_spec(value: Any) -> None:
    sections = ("task", "model", "optim", "train")
    if not isinstance(value, dict) or not all(isinstance(value.get(s), dict) for s in sections):
        raise ValueError("sections are missing")
    _check_plain(value)


def _check_plain(value: Any) -> None:
    """Refuse all but texts, numbers of a reasonable size, lists and mappings."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError("a key that is no text")
            _check_plain(key)
            _check_plain(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_plain(inner)
    elif isinstance(value, str):
        value.encode()  # half of a surrogate pair is no text that could be written again
    elif isinstance(value, int):
        if abs(value) >= LARGEST_NUMBER:
            raise ValueError("a number that is too large")
    elif value is not None and not isinstance(value, float):
        raise ValueError("neither text nor number")


def read_table(path: Path, needed: set[str]) -> pd.DataFrame | None:
    """A table of numbers with the columns that are `needed`, and those of its rows that have a step; or None."""
    try:
        if not is_own_file(path):
            return None
        table = pd.read_parquet(path)
        if not needed <= set(table):
            raise ValueError("columns are missing")
        numbers = table.apply(pd.to_numeric, errors="coerce")
        return numbers[numbers["step"].notna()]
    except Exception as e:  # pyarrow has many ways to say that a file is none of its own
        warn_damaged(path, type(e).__name__)
        return None


_READABLE: dict[Path, tuple[int, int]] = {}  # curves that have been read, as they were then: age and size


def has_rows(path: Path) -> bool:
    """Can a curve be read from `path`? One that could is read again only if the file has changed."""
    try:
        file = path.stat()
    except OSError:
        return False
    version = file.st_mtime_ns, file.st_size
    if _READABLE.get(path) != version:
        table = read_table(path, {"step"})
        if table is None or table.empty:
            return False
        _READABLE[path] = version
    return True
