"""Have any numbers moved? Compares the tables and claims under results/ with those of a commit.

    python tools/same_numbers.py COMMIT

Three comparisons: every results/*.csv of the working tree with that of the commit, cell by cell; the claims in every
results/*.json likewise; and for every figure the claims that its code makes of its committed table with those in its
JSON, to nine digits, since a table is rounded when it is written. Lists what differs, and ends with a sentence that
says how much is equal, what the entropy fix changed and which figures were run since. Exit code 1 if anything else
differs.
"""

import io
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.papers.catalogue import entries, is_available
from unstuck.papers.figure import load
from unstuck.papers.reproduce import compared

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
#: Names that were given since: of files, of the forecaster's signals in tables and claims, and of reworded claims.
FILES = {"hopeless.csv": "negative_controls.csv"}
WORDS = {"links": "two_step_gain", "parting": "head_divergence", "sharpening": "entropy_drop"}
WORDS |= {
    "so many times as fast is the schedule as": "speed-up of the schedule over",
    "looks at which the schedule repeats": "steps at which the schedule repeats",
    "heads that look at the relevant token then": "heads with most attention on the relevant token then",
    "band": "interval",
    "bands": "intervals",
    "no end named by": "no end predicted by",
    "no sign asked": "negative controls",
}


def today(text: str) -> str:
    """A text in today's words; of old and of new results alike, so that only numbers are compared."""
    return re.sub(rf"\b({'|'.join(WORDS)})\b", lambda found: WORDS[found[0]], text)


def at_commit(commit: str, ending: str) -> dict[str, str]:
    """The files of results/ at a commit, by their names of today."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    names = [Path(name) for name in git("ls-tree", "--name-only", commit, "results/").splitlines()]
    found = {p.name: git("show", f"{commit}:results/{p.name}") for p in names if p.suffix == ending}
    return {FILES.get(name, name): today(text) for name, text in found.items()}


def here(ending: str) -> dict[str, str]:
    paths = sorted(RESULTS.glob(f"*{ending}"))
    return {FILES.get(p.name, p.name): today(p.read_text(encoding="utf-8")) for p in paths}


def different_cells(before: str, now: str) -> str:
    """Columns that are not the same, and in how many rows; nothing if all are."""
    old, new = (pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False) for text in (before, now))
    if list(old) != list(new) or len(old) != len(new):
        return f"{old.shape} before, {new.shape} now, columns {sorted(set(old) ^ set(new))}"
    moved = {c: int((old[c] != new[c]).sum()) for c in old}
    return ", ".join(f"{c} in {n} rows" for c, n in moved.items() if n)


def values(result: Any) -> dict[str, Any]:
    """The claims of a result by their quantities: ours, the paper's, the verdict; numbers to nine digits."""
    claims = result.get("claims", []) if isinstance(result, dict) else []
    return {c["quantity"]: [_plain(c.get(k)) for k in ("ours", "paper", "verdict")] for c in claims}


def _plain(value: Any) -> Any:
    return f"{value:.9g}" if isinstance(value, float) else value


def recomputed(stored: dict[str, Any]) -> Iterator[str]:
    """Claims that a figure's code makes of its committed table, where they are not those in its JSON."""
    for name in entries():
        table = RESULTS / f"{name}.csv"
        if not (is_available(name) and table.is_file() and name in stored):
            continue
        try:
            found = json.loads(today(json.dumps(compared(load(name), pd.read_csv(table)), ensure_ascii=False)))
        except Exception as e:  # a figure that fails is one line of the list, not its end
            yield f"{name}: {type(e).__name__}: {e}"
            continue
        mine, known = values(found), values(stored[name])
        for quantity in {**known, **mine}:
            if mine.get(quantity) != known.get(quantity):
                yield f"{name}, from its table: {quantity}: {known.get(quantity)} stored, {mine.get(quantity)} now"


class Comparison:
    """What is equal, what the entropy fix changed, which figures were run since, and what differs otherwise."""

    def __init__(self, commit: str) -> None:
        before, now = (
            {Path(n).stem: json.loads(t) for n, t in side.items()}
            for side in (at_commit(commit, ".json"), here(".json"))
        )
        self.stored = now
        self.since = [name for name in now if _runs(now[name]) != _runs(before.get(name))]
        self.tables = self.claims = 0
        self.entropy: list[str] = []
        self.different: list[str] = []
        self._tables(at_commit(commit, ".csv"), here(".csv"))
        for name in sorted({*before, *now} - {*self.since}):
            self._claims(name, values(before.get(name)), values(now.get(name)))
        self.different += recomputed(now)

    def _tables(self, before: dict[str, str], now: dict[str, str]) -> None:
        for name in sorted({*before, *now}):
            if Path(name).stem in self.since:
                continue
            if name in before and name in now:
                cells = "" if before[name] == now[name] else different_cells(before[name], now[name])
            else:
                cells = f"only {'before' if name in before else 'now'}"
            self.tables += not cells
            self.different += [f"{name}: {cells}"] if cells else []

    def _claims(self, name: str, before: dict[str, Any], now: dict[str, Any]) -> None:
        for quantity in {**before, **now}:
            was, is_ = before.get(quantity), now.get(quantity)
            if was == is_:
                self.claims += 1
            elif name == "gpt2-induction" and "in entropy" in quantity:
                # A calibration for the read-out position was applied to the mean over rows; that forecast is gone.
                self.entropy.append(f"{name}: {quantity}")
            else:
                self.different.append(f"{name}: {quantity}: {was} before, {is_} now")

    def sentence(self) -> str:
        parts = [f"{self.tables} tables, {self.claims} claims equal"]
        parts.append(
            f"{len(self.entropy)} changed by the entropy fix{': ' if self.entropy else ''}{', '.join(self.entropy)}"
        )
        parts.append(f"{len(self.since)} figures run since{': ' if self.since else ''}{', '.join(self.since)}")
        return "; ".join([*parts, *([f"{len(self.different)} DIFFERENT"] if self.different else [])])


def _runs(result: Any) -> Any:
    """How many runs a result was drawn from; nothing for one that is no figure's, or that there was not."""
    return None if result is None else result.get("runs", {}).get("finished", 0) if isinstance(result, dict) else 0


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    warnings.simplefilter("ignore")
    found = Comparison(sys.argv[1])
    print("\n".join([*found.different, found.sentence()]))
    return 1 if found.different else 0


if __name__ == "__main__":
    sys.exit(main())
