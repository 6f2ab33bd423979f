"""Do the next unfinished runs of all trained figures, in the order of their tiers; or collect what is finished.

    python tools/results.py --store DIR --minutes 140    train in DIR, two one-thread workers; write nothing else
    python tools/results.py --store DIR --collect        archive finished runs of DIR in results/store, rewrite the
                                                         figures they belong to, the docs' tables, results/TODO.md
    python tools/results.py --collect                    rewrite all figures from results/store
    python tools/results.py --merge-shards               put the shards of results/store into one a family

DIR lies outside every checkout and keeps unfinished runs with their checkpoints. Small checkpoints of long runs
are also kept in results/unfinished, and go on from there on another machine. DIR gets a copy of the shards of
results/store. Train from a git worktree of a committed state, so that editing never disturbs a run; `make runs` and
`make results` do both (CONTRIBUTING.md).
"""

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import fit_induction
import fit_regression

from unstuck.config.run import RunSpec
from unstuck.papers.catalogue import available
from unstuck.papers.figure import in_one_go, in_parts, is_outdated, is_trained, load
from unstuck.papers.lab import TieredRun, plan, units
from unstuck.papers.provenance import provenance
from unstuck.papers.reproduce import reproduce
from unstuck.runner.cost import predicted_cost, predicted_seconds
from unstuck.runner.sweep import run_sweep
from unstuck.runner.units import stored_results
from unstuck.store.shards import archive_runs, copy_shards, merge_shards
from unstuck.store.store import Store

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
STORE = RESULTS / "store"
UNFINISHED = RESULTS / "unfinished"  # committed checkpoints: a long run ends although a machine is lost
LONG_SECONDS = 1800  # what a run takes at least for its checkpoint to be kept
LARGEST_KEPT = 5 * 2**20  # bytes of a run directory: git keeps every version of it


#: The order within each tier: published grids that were never run, larger sizes, then tests of explanations and our own
#: hypotheses. Figures that are not named come after these, as `unstuck figures` lists them.
FIRST_IN_TIER = (
    *("fig14", "fig15", "fig3-large", "recall-pairs", "fig5-cross-128", "recall-rule", "recall-embedding"),
    *("incremental-fig2", "incremental-fig3", "incremental-fig9-m", "incremental-fig12-once"),
    *("incremental-fig3-right-once", "recall-joined", "no-residual"),
    *("recall-repeated", "incremental-fig18", "incremental-fig19", "fig5-late", "fig11"),
)


def trained_figures() -> dict[str, list[TieredRun]]:
    names = [name for name in FIRST_IN_TIER if name in available()]
    figures = {name: load(name) for name in dict.fromkeys([*names, *available()])}
    return {name: list(f.runs("cpu")) for name, f in figures.items() if is_trained(f)}  # type: ignore[attr-defined]


def left(runs: list[TieredRun], store: Store) -> list[list[RunSpec]]:
    """The races and single runs that are not over."""
    return [unit for unit in units(runs) if stored_results(unit, store) is None]


def in_order(figures: dict[str, list[TieredRun]], store: Store, first: Sequence[str] = ()) -> list[list[list[RunSpec]]]:
    """What is left, tier by tier: the figures and runs named first, in their order, then figure by figure, the longest
    run of each first.

    A sweep a tier, since in one the same run asked for twice is done once, with the larger budget: a run of tier 2 that
    tier 3 wants four times as long would be that long at its place in tier 2.
    """
    sweeps = []
    for tier in sorted({run.tier for runs in figures.values() for run in runs}):
        wanted = {name: left([run for run in runs if run.tier == tier], store) for name, runs in figures.items()}
        every = list(chain(*wanted.values()))
        named = [unit for name in first for unit in wanted.get(name) or _with_run(name, every)]
        longest_first = (sorted(units, key=predicted_seconds, reverse=True) for units in wanted.values())
        sweeps.append(named + list(chain(*longest_first)))
    return sweeps


def _with_run(run_id: str, units: Iterable[list[RunSpec]]) -> list[list[RunSpec]]:
    return [unit for unit in units if run_id in {spec.run_id for spec in unit}]


def write_todo(figures: dict[str, list[TieredRun]], store: Store) -> int:
    """List what is left, by tier and figure; returns how many runs."""
    lines = [
        "# Runs still to do",
        "",
        "`make runs` does tier after tier and figure after figure in this order, the longest runs of each first;",
        "`make results` collects them. Profile `cpu`.",
        "A run that figures share is timed where it stands first, and again only for what a later one adds.",
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
            if todo:
                lines.append(f"| {tier} | {name} | {sum(map(len, todo))} | {len(mine)} | {new / 3600:.1f} |")
    lines += in_one_go_lines()
    (RESULTS / "TODO.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return left_in_all


def in_one_go_lines() -> list[str]:
    """What is left of figures that `make runs` does not train, since they keep no checkpoints, and how to do it."""
    lines = []
    for name in available():
        figure, path = load(name), RESULTS / f"{name}.json"
        result = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if not in_one_go(figure) or not (result is None or is_outdated(result, figure)):
            continue
        jobs = plan(figure, "cpu")
        count, hours = sum(job.count for job in jobs), sum(job.seconds for job in jobs) / 3600
        lines.append(
            f"- Tier {figure.TIER}, not by `make runs`: {name}, {count} runs in one go, {hours:.1f} hours: "  # type: ignore[attr-defined]
            f"`unstuck reproduce {name} --profile cpu --out results`"
        )
    return ["", *lines] if lines else []


def collect(source: Store, target: Store) -> set[str]:
    """Archive in `target` what is finished in `source` and not there yet, or with fewer steps; returns the ids."""
    new = []
    for run in source:
        theirs, mine = ((place.run(run.path.name).status() or {}) for place in (source, target))
        here = (run.path / "status.json").is_file()  # what the source has from an archive was collected before
        if not here or theirs.get("state") != "finished" or mine.get("result") == theirs["result"]:
            continue
        if max(mine.get("step", 0), (mine.get("result") or {}).get("steps", 0)) <= theirs["result"]["steps"]:
            new.append(run.path)
    return archive_runs(new, target.archive)


def keep_checkpoints(figures: dict[str, list[TieredRun]], source: Store, target: Store, kept: Path) -> set[str]:
    """Copy from `source` into `kept` the checkpoints of long runs that figures wait for, also of those that ended and
    that other runs are compared with; drop what no figure waits for. Returns the ids."""
    waiting = {spec.run_id: spec for runs in figures.values() for unit in left(runs, target) for spec in unit}
    ids = set()
    for run_id, spec in waiting.items():
        here, there = source.run(run_id).path, kept / run_id
        if not (here / "checkpoint").is_dir() or predicted_cost(spec).seconds < LONG_SECONDS:
            continue
        files = [path for path in here.rglob("*") if path.is_file() and path.name not in NOT_KEPT]
        if sum(path.stat().st_size for path in files) > LARGEST_KEPT:
            continue
        ids.add(run_id)
        shutil.rmtree(there, ignore_errors=True)
        for path in files:
            (there / path.relative_to(here)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there / path.relative_to(here))
    for old in kept.iterdir() if kept.is_dir() else ():
        if old.name not in ids and old.name not in waiting:
            shutil.rmtree(old)
    return ids


NOT_KEPT = (".lock", "predictions.safetensors")  # the latter are made again from the checkpoint


def use_checkpoints(kept: Path, store: Store) -> None:
    """Put kept checkpoints where runs are trained, unless the run is there already."""
    for path in kept.iterdir() if kept.is_dir() else ():
        if not store.run(path.name).path.exists():
            shutil.copytree(path, store.run(path.name).path)


def train(
    figures: dict[str, list[TieredRun]], store: Store, first: Sequence[str], minutes: float, workers: int
) -> None:
    shown = ""

    def show(done: float, of: float, text: str) -> None:
        nonlocal shown
        if (line := f"{text}, {done / of:.0%} of the predicted work") != shown:  # a log file grows by what is new
            print(line, file=sys.stderr, flush=True)
        shown = line

    until = time.monotonic() + 60 * minutes
    for todo in in_order(figures, store, first):
        if (seconds_left := until - time.monotonic()) > 0:
            done = run_sweep(todo, store, workers=workers, seconds=seconds_left, progress=show, order="given")
            print(done.as_json(), flush=True)
            for run_id, why in done.failed.items():
                print(f"{run_id}: {why}", file=sys.stderr)


BY_LAW = ("text-corpora",)  # figures whose tables rest on the law of induction heads


def write_results(figures: dict[str, list[TieredRun]], store: Store, new: set[str] | None) -> None:
    """Tables, pictures and claims of every figure whose runs are done and that `new` runs, or None for all, belong to;
    the laws of regression and of induction heads that follow from them; and what is left."""
    write_figures(figures, store, new)
    if fit_regression.refit():
        print("the law of Transformers on regression has changed")
    if fit_induction.refit():
        print("the law of induction heads has changed")
        write_figures({name: figures[name] for name in BY_LAW if name in figures}, store, None)
    print(write_todo(figures, store), "runs left; see results/TODO.md")


def write_figures(figures: dict[str, list[TieredRun]], store: Store, new: set[str] | None) -> None:
    for name, wanted in figures.items():
        missing = sum(map(len, left(wanted, store)))
        changed = new is None or not new.isdisjoint(run.spec.run_id for run in wanted)
        changed = changed or len(wanted) - missing != _drawn_runs(RESULTS / f"{name}.json")
        print(f"{name}: {len(wanted) - missing} of {len(wanted)} runs")
        # A law of half a grid would mislead, so a figure that may be drawn in parts says so.
        if changed and (not missing or in_parts(load(name))):
            reproduce(name, "cpu", RESULTS, store=store.path, run=False)


def _drawn_runs(path: Path) -> int | None:
    """How many runs a figure's stored result was drawn from; None where there is none."""
    if not path.is_file():
        return None
    return json.loads(path.read_text(encoding="utf-8")).get("runs", {}).get("finished")


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a script's background starts with it ignored
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, metavar="DIR", help="where runs are trained, outside every checkout")
    parser.add_argument("--collect", action="store_true", help="train nothing; archive and rewrite")
    parser.add_argument("--merge-shards", action="store_true", help="train nothing; one shard a family")
    parser.add_argument("--minutes", type=float, default=140.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first", nargs="*", default=[], metavar="NAME", help="figures or ids of runs that come first")
    arguments = parser.parse_args()
    if arguments.merge_shards:
        merge_shards(Store(STORE).archive)
        return 0
    provenance()  # of the code as it is now, and will still be when tables are written
    figures = trained_figures()
    ids = {run.spec.run_id for runs in figures.values() for run in runs}
    if unknown := set(arguments.first) - set(figures) - ids:
        parser.error(
            f"--first: no trained figure or run of one is named {', '.join(sorted(unknown))}; there are "
            f"{', '.join(figures)}"
        )
    if not arguments.collect:
        if arguments.store is None or ROOT in arguments.store.resolve().parents:
            parser.error("--store: runs are trained in a directory outside this checkout, such as ../store")
        store = Store(arguments.store)
        store.path.mkdir(parents=True, exist_ok=True)
        copy_shards(Store(STORE).archive, store.archive)
        use_checkpoints(UNFINISHED, store)
        try:
            train(figures, store, arguments.first, arguments.minutes, arguments.workers)
        except KeyboardInterrupt:
            print("stopped; runs go on from their checkpoints", file=sys.stderr)
        return 0
    new = collect(Store(arguments.store), Store(STORE)) if arguments.store is not None else None
    print(f"{len(new or ())} runs archived")
    write_results(figures, Store(STORE), new)
    if arguments.store is not None:
        kept = keep_checkpoints(figures, Store(arguments.store), Store(STORE), UNFINISHED)
        print(f"{len(kept)} checkpoints of long runs kept")
    import generate_docs

    return generate_docs.main()


if __name__ == "__main__":
    sys.exit(main())
