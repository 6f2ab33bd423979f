"""Read a table of runs from a run store, CSV or Parquet."""

from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.errors import BadInput


def read_table(source: str | Path) -> pd.DataFrame:
    """The table in `source`, by its ending; a missing or unreadable file is bad input."""
    path = Path(source)
    readers: dict[str, Any] = {".csv": pd.read_csv, ".parquet": pd.read_parquet}
    if path.is_dir():
        return _store(path)
    if path.suffix.lower() not in readers:
        raise BadInput("source", str(source), "a run store, or a .csv or .parquet file")
    if not path.is_file():
        raise BadInput("source", str(source), "a file that exists")
    try:
        table = readers[path.suffix.lower()](path)
    except Exception as e:  # every reader has its own errors for a damaged file
        raise BadInput("source", str(source), f"a readable table ({type(e).__name__}: {e})") from e
    if table.empty:
        raise BadInput("source", str(source), "a table with at least one row")
    return table


def _store(path: Path) -> pd.DataFrame:
    from unstuck.runs.store import Store

    table = Store(path).table()
    if table.empty:
        raise BadInput("source", str(path), "a store with finished runs; `unstuck sweep ... --out DIR` makes one")
    return table
