"""Have any numbers moved? Compares the tables and claims under results/ with those of a commit.

    python tools/same_numbers.py COMMIT

Three things: every results/*.csv of the working tree, cell by cell, with that of the commit; the claims in every
results/*.json likewise; and for every figure the claims that its code makes of its committed table with those in its
JSON, to nine digits, since a table is rounded when it is written. Lists what differs. Ends with 1 if anything does.
"""

import io
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.papers.catalogue import entries, is_available
from unstuck.papers.reproduce import compared

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


def at_commit(commit: str, ending: str) -> dict[str, str]:
    """The files of results/ at a commit, by name."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    names = [Path(name) for name in git("ls-tree", "--name-only", commit, "results/").splitlines()]
    return {p.name: git("show", f"{commit}:results/{p.name}") for p in names if p.suffix == ending}


def here(ending: str) -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in sorted(RESULTS.glob(f"*{ending}"))}


def tables(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    """Columns that are not the same, and in how many rows."""
    for name in sorted({*before, *now}):
        if name not in before or name not in now:
            yield f"{name}: only {'before' if name in before else 'now'}"
        elif before[name] != now[name]:
            old, new = (
                pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False) for text in (before[name], now[name])
            )
            if list(old) != list(new) or len(old) != len(new):
                yield f"{name}: {old.shape} before, {new.shape} now, columns {sorted(set(old) ^ set(new))}"
            else:
                moved = {c: int((old[c] != new[c]).sum()) for c in old}
                yield f"{name}: {', '.join(f'{c} in {n} rows' for c, n in moved.items() if n)}"


def claims(name: str, before: Any, now: Any) -> Iterator[str]:
    """Quantities whose value or verdict is not the same."""
    old, new = ({c["quantity"]: c for c in found.get("claims", [])} for found in (before, now))
    for quantity in [*old, *(q for q in new if q not in old)]:
        was, is_ = (
            {k: c.get(k) for k in ("ours", "paper", "verdict")} if (c := side.get(quantity)) else None
            for side in (old, new)
        )
        if _plain(was) != _plain(is_):
            yield f"{name}: {quantity}: {_changed(was)} before, {_changed(is_)} now"


def _plain(claim: dict[str, Any] | None) -> Any:
    return None if claim is None else {k: f"{v:.9g}" if isinstance(v, float) else v for k, v in claim.items()}


def _changed(claim: dict[str, Any] | None) -> str:
    return "none" if claim is None else f"{claim['ours']!r} ({claim['verdict']})"


def recomputed() -> Iterator[str]:
    """Claims that a figure's code makes of its committed table, where they are not those in its JSON."""
    for name in entries():
        table, stored = RESULTS / f"{name}.csv", RESULTS / f"{name}.json"
        if not (is_available(name) and table.is_file() and stored.is_file()):
            continue
        try:
            found = json.loads(json.dumps(compared(name, pd.read_csv(table))))
        except Exception as e:  # a figure that fails is one line of the list, not its end
            yield f"{name}: {type(e).__name__}: {e}"
            continue
        yield from claims(f"{name}, from its table", json.loads(stored.read_text(encoding="utf-8")), found)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    warnings.simplefilter("ignore")
    commit, found = sys.argv[1], []
    found += list(tables(at_commit(commit, ".csv"), here(".csv")))
    before, now = at_commit(commit, ".json"), here(".json")
    for name in sorted({*before, *now}):
        old, new = (json.loads(side.get(name, "{}")) for side in (before, now))
        if isinstance(old, dict) and isinstance(new, dict):
            found += list(claims(name, old, new))
    found += list(recomputed())
    print("\n".join(found) or f"all tables and claims are those of {commit}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
