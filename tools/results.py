"""Do the next unfinished runs of all trained figures, in tier order; rewrite what belongs to figures that are complete.

Runs live in results/store (committed without checkpoints), two one-thread workers; stops cleanly when the time is up.
What is left is listed in results/TODO.md.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from unstuck.papers.catalogue import available
from unstuck.papers.figure import is_trained, load
from unstuck.papers.lab import TieredRun, units
from unstuck.papers.provenance import provenance
from unstuck.papers.reproduce import reproduce
from unstuck.runs.cost import predicted_cost
from unstuck.runs.store import Store
from unstuck.runs.sweep import run_sweep, stored_results
from unstuck.spec.run import RunSpec

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
TASKS = ("single_location", "markov", "recall")  # the least work first


def trained_figures() -> dict[str, list[TieredRun]]:
    figures = {name: load(name) for name in available()}
    return {name: list(f.runs("cpu")) for name, f in figures.items() if is_trained(f)}  # type: ignore[attr-defined]


def left(runs: list[TieredRun], store: Store) -> list[list[RunSpec]]:
    """The races and single runs that are not over."""
    return [unit for unit in units(runs) if stored_results(unit, store) is None]


def seconds(unit: list[RunSpec]) -> float:
    return sum(predicted_cost(spec).seconds for spec in unit)


def in_order(figures: dict[str, list[TieredRun]], store: Store, first: Sequence[str] = ()) -> list[list[list[RunSpec]]]:
    """What is left of tiers 1 and 2, and of tier 3: the figures and runs named first, in their order, then one task
    after the other, the cheapest first in each.

    Two sweeps, since in one the same run asked for twice is done once, with the larger budget: a run of tier 2 that
    tier 3 wants four times as long would be that long at its place in tier 2.
    """
    sweeps = []
    for tiers in ({1, 2}, {3}):
        found: dict[tuple[int, int], list[list[RunSpec]]] = {}
        for runs in figures.values():
            for key in {_place(run) for run in runs if run.tier in tiers}:
                found.setdefault(key, []).extend(left([run for run in runs if _place(run) == key], store))
        wanted = {name: left([run for run in runs if run.tier in tiers], store) for name, runs in figures.items()}
        named = [unit for name in first for unit in wanted.get(name) or _with_run(name, chain(*wanted.values()))]
        sweeps.append(named + [unit for key in sorted(found) for unit in sorted(found[key], key=seconds)])
    return sweeps


def _with_run(run_id: str, units: Iterable[list[RunSpec]]) -> list[list[RunSpec]]:
    return [unit for unit in units if run_id in {spec.run_id for spec in unit}]


def _place(run: TieredRun) -> tuple[int, int]:
    name = run.spec.task_name
    return TASKS.index(name) if name in TASKS else len(TASKS), run.tier


def write_todo(figures: dict[str, list[TieredRun]], store: Store) -> int:
    """List what is left, by tier and figure; returns how many runs."""
    lines = [
        "# Runs still to do",
        "",
        "`make results` does tiers 1 and 2, one task after the other and the cheapest runs first, then tier 3. `cpu`",
        "profile. A run that figures share is timed where it stands first, and again only for what a later one adds.",
        "",
    ]
    lines += ["| tier | figure | runs left | of | predicted hours on one core |", "|---|---|---|---|---|"]
    left_in_all, listed = 0, dict[str, float]()
    for tier in sorted({r.tier for runs in figures.values() for r in runs}):
        for name, runs in figures.items():
            mine = [r for r in runs if r.tier == tier]
            todo = left(mine, store)
            new = 0.0
            for spec in chain(*todo):
                left_in_all += spec.run_id not in listed
                known, cost = listed.get(spec.run_id, 0.0), predicted_cost(spec).seconds
                new += max(0.0, cost - known)
                listed[spec.run_id] = max(cost, known)
            if mine:
                lines.append(f"| {tier} | {name} | {sum(map(len, todo))} | {len(mine)} | {new / 3600:.1f} |")
    (RESULTS / "TODO.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return left_in_all


def ignore_unfinished(store: Store) -> None:
    """Keep git's hands off runs that are not finished: without their checkpoints they would be of no use elsewhere."""
    names = [run.path.name for run in store if (run.status() or {}).get("state") != "finished"]
    (store.path / ".gitignore").write_text("".join(f"/{name}/\n" for name in names), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=140.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first", nargs="*", default=[], metavar="NAME", help="figures or ids of runs that come first")
    arguments = parser.parse_args()
    provenance()  # of the code as it is now, and will still be when tables are written
    figures, store = trained_figures(), Store(RESULTS / "store")
    ids = {run.spec.run_id for runs in figures.values() for run in runs}
    if unknown := set(arguments.first) - set(figures) - ids:
        parser.error(
            f"--first: no trained figure or run of one is named {', '.join(sorted(unknown))}; there are "
            f"{', '.join(figures)}"
        )

    shown = ""

    def show(done: float, of: float, text: str) -> None:
        nonlocal shown
        if (line := f"{text}, {done / of:.0%} of the predicted work") != shown:  # a log file grows by what is new
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
        shown = line

    until = time.monotonic() + 60 * arguments.minutes
    try:
        for todo in in_order(figures, store, arguments.first):
            if (seconds_left := until - time.monotonic()) > 0:
                done = run_sweep(todo, store, workers=arguments.workers, seconds=seconds_left, progress=show)
                print("\n", done.as_json())
    except KeyboardInterrupt:
        print("\nstopped; what is finished goes into tables (interrupt once more to leave that)", file=sys.stderr)
    for name, wanted in figures.items():
        missing = sum(map(len, left(wanted, store)))
        print(f"{name}: {len(wanted) - missing} of {len(wanted)} runs")
        if not missing or hasattr(load(name), "IN_PARTS"):  # else not: a law of half a grid would mislead
            reproduce(name, "cpu", RESULTS, store=RESULTS / "store", run=False)
    ignore_unfinished(store)
    print(write_todo(figures, store), "runs left; see results/TODO.md")
    import generate_docs

    return generate_docs.main()


if __name__ == "__main__":
    sys.exit(main())
