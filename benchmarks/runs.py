"""What a large store costs: `unstuck runs` and the dashboard's first page, beside a plain loop that reads every run.

CPU seconds, for 20,000 made-up runs and for 100,000 (2 minutes of CPU time; `--small` leaves these out). The loop reads
a sample and is scaled up. The index is written by a first, untimed `unstuck runs`, as in practice by whoever looks at
the store first. The cache directory is a temporary one. Last, a curve, beside its Parquet file alone.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml

from unstuck.config import load_spec
from unstuck.store.index import SETTLED
from unstuck.store.store import Store

AIMS = {20_000: 1.0, 100_000: 3.0}  # CPU seconds, by the number of runs
SAMPLE = 1000  # runs that the plain loop reads
TIMES = 3  # that each is measured; the least counts, since other processes only add
READS = 50  # of a curve
SEED = 987_654_321  # a place holder in the text of a specification

COMMAND = "import sys; from unstuck.cli import entry; sys.argv = ['unstuck', 'runs', sys.argv[1]]; entry()"
FIRST_PAGE = """
import json, sys, time
from pathlib import Path
from unstuck.view.dashboard.runs import Reader
begun = time.process_time()
reader = Reader(Path(sys.argv[1]))
json.dumps(reader.live())
page = time.process_time() - begun
begun = time.process_time()
first = reader.table()
json.dumps(first)
rows = time.process_time() - begun
reader._rest = 0.0
begun = time.process_time()
json.dumps(reader.table(since=first["version"]))
print(json.dumps({"page": page, "rows": rows, "later": time.process_time() - begun, "total": first["total"]}))
"""


def make_store(root: Path, count: int) -> None:
    """Runs that obey 3 d T^0.5; all differ in seed, plateau and seconds."""
    specs: dict[tuple[int, int], str] = {}
    for i in range(count):
        d, T = 2 ** (i % 4 + 2), 2 ** (i // 4 % 3 + 3)
        if (d, T) not in specs:
            spec = load_spec("regression", [f"task.d={d}", f"task.T={T}", f"seed={SEED}"])
            specs[d, T] = yaml.safe_dump(spec.as_dict(), sort_keys=False)
        directory, plateau = root / f"{i:016x}", 3.0 * d * T**0.5 * (1 + 1e-6 * i)
        result = {"status": "emerged", "threshold": 0.1, "plateau_steps": plateau, "crossings": {"0.1": plateau}}
        result |= {"steps": int(plateau), "final": {"test_loss": 0.1}, "seconds": 1 + i / 7}
        os.mkdir(directory)
        for name, text in (
            ("spec.yaml", specs[d, T].replace(str(SEED), str(i))),
            ("status.json", json.dumps({"state": "finished", "step": int(plateau), "result": result}, indent=1)),
        ):
            with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
                file.write(text)


def plain_loop(root: Path, count: int) -> float:
    """CPU seconds to read every run, as without an index."""
    runs = [Store(root).run(f"{i:016x}") for i in range(0, count, count // SAMPLE)]
    begun = time.process_time()
    if not all(run.row() for run in runs):
        raise SystemExit("a run of the made-up store could not be read")
    return (time.process_time() - begun) * count / len(runs)


def child(code: str, root: Path) -> tuple[float, str]:
    """CPU seconds of a process from its start to its end, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([sys.executable, "-c", code, str(root)], check=True, stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out


def command(root: Path) -> float:
    seconds, out = child(COMMAND, root)
    if sum(line.startswith("0") for line in out.splitlines()) != len(os.listdir(root)):
        raise SystemExit("`unstuck runs` did not print a line a run")
    return seconds


def least(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    found = [measure() for _ in range(TIMES)]
    return {name: min(one[name] for one in found) for name in found[0]}


def measured(count: int, folder: Path) -> bool:
    """Measure a store of so many runs, print it, and say whether the aims are met."""
    root = folder / str(count)
    root.mkdir()
    make_store(root, count)
    time.sleep(SETTLED / 1e9)  # younger files are not trusted to stay as they are
    loop = plain_loop(root, count)
    cold = command(root)
    warm = least(lambda: {"command": command(root), **json.loads(child(FIRST_PAGE, root)[1])})
    aim = AIMS[count]
    print(f"{count:,} runs, in CPU seconds")
    print(f"  a plain loop: {loop:.1f}; the first `unstuck runs`, which writes the index: {cold:.1f}")
    for name, what in (
        ("command", "`unstuck runs`, with imports"),
        ("page", "the dashboard's first page"),
        ("rows", "its table"),
    ):
        print(f"  {what}: {warm[name]:.2f}, {loop / warm[name]:.0f} times as fast as the loop (aim: under {aim:.2f} s)")
    print(f"  a later look of the dashboard, nothing changed: {warm['later']:.2f}")
    return max(warm["command"], warm["page"], warm["rows"]) < aim


def read_a_curve(folder: Path) -> None:
    """Milliseconds to read the curve of a run with 16 heads and 400 rows, and its file as pyarrow does."""
    run = Store(folder).run("0" * 16)
    run.path.mkdir(parents=True)
    heads = {f"attn_{layer}_{head}": np.linspace(0, 1, 400) for layer in range(2) for head in range(8)}
    run.write_curve(pd.DataFrame({"step": np.arange(400) * 20, "test_loss": 1.0, **heads}))

    def spent(read: Callable[[], object]) -> float:
        read()
        begun = time.process_time()
        for _ in range(READS):
            read()
        return (time.process_time() - begun) / READS * 1000

    ours, parquet = spent(run.curve), spent(lambda: pq.read_table(run.path / "curve.parquet"))
    print(f"a curve: {ours:.1f} ms, of which Parquet {parquet:.1f}: {ours / parquet:.1f} times as long")


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        counts = [min(AIMS)] if "--small" in sys.argv else sorted(AIMS)
        met = [measured(count, Path(name)) for count in counts]
        read_a_curve(Path(name) / "curve")
        return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
