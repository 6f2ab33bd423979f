"""CPU time of short commands, from their start to their end: user and system time, the median of five, in turns.

Beside them, in the same run, `import numpy, pandas`: what a script that reads a table pays before it begins. The exit
code is 1 where an aim is missed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from unstuck.config.load import build_spec, merge, read_source
from unstuck.store.store import Store

ROUNDS, RUNS = 5, 20
AIMS = {"runs": 0.6, "forecast": 0.6, "figures": 0.6, "predict": 1.0}  # seconds


def cpu_seconds(*words: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def write_store(folder: Path) -> None:
    """Runs that have emerged, as a small sweep leaves them."""
    result = {"status": "emerged", "plateau_steps": 400.5, "threshold": 0.1, "crossings": {"0.1": 400.5}}
    result |= {"steps": 420, "final": {"test_loss": 0.09}, "seconds": 12.5, "resumed_from": 0}
    for seed in range(RUNS):
        spec = build_spec(merge(read_source("regression"), {"seed": seed}))
        run = Store(folder).run(spec.run_id)
        run.path.mkdir(parents=True)
        run.write_spec(spec)
        run.write_status({"state": "finished", "step": 420, "result": result})


def write_curve(path: Path) -> None:
    rows = (f"{20 * i},{0.5 - 1e-5 * i},{0.02 * 1.01**i},0.02" for i in range(200))
    path.write_text("\n".join(["step,test_loss,attn_0_0,attn_0_1", *rows]))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_store(folder / "runs")
        write_curve(folder / "curve.csv")
        words = {
            "runs": [str(folder / "runs")],
            "forecast": [str(folder / "curve.csv")],
            "figures": [],
            "predict": ["--T", "512", "--d", "64"],
        }
        commands = {command: ["-m", "unstuck", command, *rest] for command, rest in words.items()}
        times: dict[str, list[float]] = {name: [] for name in ("baseline", *commands)}
        for _ in range(ROUNDS):
            times["baseline"].append(cpu_seconds("-c", "import numpy, pandas"))
            for command, line in commands.items():
                times[command].append(cpu_seconds(*line))
    medians = {name: sorted(found)[ROUNDS // 2] for name, found in times.items()}
    baseline = medians.pop("baseline")
    print(f"import numpy, pandas     {baseline:5.2f} s of CPU")
    for command, seconds in medians.items():
        print(f"unstuck {command:16} {seconds:5.2f} s (aim {AIMS[command]:.2f}), ratio {seconds / baseline:.2f}")
    return 0 if all(seconds <= AIMS[command] for command, seconds in medians.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
