"""What a Ray cluster costs beside the local pool, in one run: the same sweeps, two workers each, on this machine.

(a) runs of some 20 seconds; (b) 10, 100 and 1,000 tiny runs, of two steps each, where nothing but overhead is left.
Both begin with new workers, which import PyTorch, as a user's sweep does: Ray is started anew before each of its
sweeps, and before the clock is. `--quick` leaves out the 1,000; `--csv FILE` keeps the numbers (results/scale.csv).
"""

import logging
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from unstuck.config.run import RunSpec
from unstuck.papers.provenance import provenance
from unstuck.runner.sweep import expand, run_sweep
from unstuck.store.store import Store

LONG = ["task.T=32", "task.d=32", "train.thresholds=[]", "train.probe_every=1000", "seed=0,1,2,3"]
TINY = ["task.T=4", "task.d=2", "model.width=16", "model.qk=4", "train.thresholds=[]", "train.max_steps=2"]
SECONDS = 20.0
AIM = 1.10


def tiny(count: int) -> list[RunSpec]:
    return expand("regression", [*TINY, "seed=" + ",".join(map(str, range(count)))])


def timed(how: str, specs: list[RunSpec], folder: Path) -> float:
    from unstuck.runner.on_ray import run_on_ray

    store = Store(folder / f"{how}-{len(list(folder.iterdir()))}")
    if how == "ray":
        start_ray()
    begun = time.perf_counter()
    sweep = run_sweep(specs, store, workers=2) if how == "local" else run_on_ray(specs, store, address="auto")
    seconds = time.perf_counter() - begun
    if sweep.failed or len(sweep.results) != len(specs):
        raise SystemExit(
            f"{how}: {len(sweep.failed)} of {len(specs)} runs failed: {next(iter(sweep.failed.values()), '')}"
        )
    return seconds


def start_ray() -> None:
    import ray

    ray.shutdown()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)


def long_runs(folder: Path) -> list[RunSpec]:
    """Runs of about SECONDS: how many steps that is, is measured."""
    trial = expand("regression", [*LONG[:-1], "train.max_steps=100"])
    store = Store(folder / "trial")
    run_sweep(trial, store, workers=1)
    (result,) = ((store.run(spec.run_id).status() or {})["result"] for spec in trial)
    steps = round(SECONDS * 1.25 * result["steps"] / result["seconds"])  # two at a time are slower than one
    return expand("regression", [*LONG, f"train.max_steps={steps}"])


def main() -> int:
    if find_spec("ray") is None:
        print("left out: Ray is not installed; pip install 'unstuck[ray]' brings it")
        return 0
    counts = [10, 100] if "--quick" in sys.argv else [10, 100, 1000]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        specs = long_runs(folder)
        seconds = {how: timed(how, specs, folder) for how in ("local", "ray")}
        ratio = seconds["ray"] / seconds["local"]
        each = seconds["local"] * 2 / len(specs)
        print(
            f"(a) {len(specs)} runs of {each:.0f} s: local {seconds['local']:.1f} s, Ray {seconds['ray']:.1f} s, ",
            end="",
        )
        print(f"ratio {ratio:.2f} (aim: at most {AIM:.2f})")
        rows = [(f"{len(specs)} runs of {each:.0f} s", *seconds.values())]
        for count in counts:
            took = {how: timed(how, tiny(count), folder) for how in ("local", "ray")}
            per_run = {how: 1e3 * s / count for how, s in took.items()}
            print(
                f"(b) {count:>5} tiny runs: local {took['local']:6.1f} s ({per_run['local']:.0f} ms a run), "
                f"Ray {took['ray']:6.1f} s ({per_run['ray']:.0f} ms a run), ratio {took['ray'] / took['local']:.2f}"
            )
            rows.append((f"{count:,} tiny runs", *took.values()))
    if "--csv" in sys.argv:
        made = provenance()
        table = pd.DataFrame(rows, columns=["sweep", "local_seconds", "ray_seconds"])
        table = table.assign(
            ratio=table["ray_seconds"] / table["local_seconds"], commit=made["commit"], date=made["date"]
        )
        table.to_csv(sys.argv[sys.argv.index("--csv") + 1], index=False, float_format="%.4g")
    return 0 if ratio <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
