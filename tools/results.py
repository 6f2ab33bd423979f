"""Do the next unfinished runs of all trained figures, in tier order; rewrite what belongs to figures that are complete.

Runs live in results/store (committed without checkpoints), two one-thread workers; stops cleanly when the time is up.
What is left is listed in results/TODO.md.
"""

import argparse
import sys
from pathlib import Path

from unstuck.papers.catalogue import available
from unstuck.papers.figure import load
from unstuck.papers.lab import TieredRun
from unstuck.papers.reproduce import is_trained, reproduce
from unstuck.runs.cost import predicted_cost
from unstuck.runs.execute import enough
from unstuck.runs.store import Store
from unstuck.runs.sweep import run_sweep

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def trained_figures() -> dict[str, list[TieredRun]]:
    figures = {name: load(name) for name in available()}
    return {name: list(f.runs("cpu")) for name, f in figures.items() if is_trained(f)}  # type: ignore[attr-defined]


def is_done(run: TieredRun, store: Store) -> bool:
    return enough(store.run(run.spec.run_id).status(), run.spec) is not None


def write_todo(figures: dict[str, list[TieredRun]], store: Store) -> int:
    """List what is left, by tier and figure; returns how many runs."""
    lines = ["# Runs still to do", "", "`make results` does them in this order. `cpu` profile.", ""]
    lines += ["| tier | figure | runs left | of | predicted hours on one core |", "|---|---|---|---|---|"]
    left_in_all = 0
    for tier in sorted({r.tier for runs in figures.values() for r in runs}):
        for name, runs in figures.items():
            mine = [r for r in runs if r.tier == tier]
            left = [r for r in mine if not is_done(r, store)]
            left_in_all += len(left)
            hours = sum(predicted_cost(r.spec).seconds for r in left) / 3600
            if mine:
                lines.append(f"| {tier} | {name} | {len(left)} | {len(mine)} | {hours:.1f} |")
    (RESULTS / "TODO.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return left_in_all


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=140.0)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    figures, store = trained_figures(), Store(RESULTS / "store")
    runs = sorted((r for f in figures.values() for r in f), key=lambda r: (r.tier, predicted_cost(r.spec).seconds))

    def show(done: float, of: float, text: str) -> None:
        print(f"\r{text}, {done / of:.0%} of the predicted work", end="", file=sys.stderr)

    if arguments.minutes > 0:
        specs = [r.spec for r in runs]
        done = run_sweep(specs, store, workers=arguments.workers, seconds=60 * arguments.minutes, progress=show)
        print("\n", done.as_json())
    for name, wanted in figures.items():
        there = sum(is_done(r, store) for r in wanted)
        print(f"{name}: {there} of {len(wanted)} runs")
        if there == len(wanted):  # a law of half a grid would mislead
            reproduce(name, "cpu", RESULTS, store=RESULTS / "store", run=False)
    print(write_todo(figures, store), "runs left; see results/TODO.md")
    sys.argv = sys.argv[:1]
    import generate_docs

    return generate_docs.main()


if __name__ == "__main__":
    sys.exit(main())
