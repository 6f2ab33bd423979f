"""What figures of trained runs share: from a list of specifications to a table of finished runs.

Such a figure has `runs(profile)`, its specifications with their tiers, the order in which `make runs` does them. Its
table is that of its finished runs, unless it has a `data(profile, progress, store)` of its own, for curves. What it
costs follows from its runs.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from unstuck.config.load import build_spec, merge, read_source
from unstuck.config.run import RunSpec
from unstuck.runner.budget import stored_result
from unstuck.runner.cost import predicted_cost
from unstuck.runner.units import stored_results
from unstuck.store.store import Store

from .figure import Claim, Job, Profile, is_trained


class TieredRun(NamedTuple):
    tier: int
    spec: RunSpec
    race: str = ""  # runs of one race are done in order, each no longer than the best plateau before it


def units(runs: Sequence[TieredRun]) -> list[list[RunSpec]]:
    """The runs as a sweep takes them: races together, the others alone."""
    out: dict[str, list[RunSpec]] = {}
    for i, run in enumerate(runs):
        out.setdefault(run.race or f"#{i}", []).append(run.spec)
    return list(out.values())


def grid(
    source: str, tier: int, seeds: Iterable[int], fixed: dict[str, Any] | None = None, **lists: Sequence[Any]
) -> list[TieredRun]:
    """The product of lists over keys written with __ for the dot: task__T=[16, 32]."""
    keys = [k.replace("__", ".") for k in lists]
    base = read_source(source)
    out = []
    for values in itertools.product(*lists.values()):
        for seed in seeds:
            changes: dict[str, Any] = {"seed": seed}
            for key, value in [*(fixed or {}).items(), *zip(keys, values, strict=True)]:
                section, _, name = key.partition(".")
                changes.setdefault(section, {})[name] = value
            out.append(TieredRun(tier, build_spec(merge(base, changes))))
    return out


def raced(runs: Sequence[TieredRun], rates: Sequence[float]) -> list[TieredRun]:
    """Every run once for each learning rate, the rates racing each other, in the order given."""
    out = []
    for i, run in enumerate(runs):
        for rate in rates:
            spec = replace(run.spec, optim=replace(run.spec.optim, lr=rate))
            out.append(TieredRun(run.tier, spec, race=f"race {i}"))
    return out


def tuned(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """For each size the runs of the learning rate that got there with the most seeds; of such, if they got there with
    all, the one with the shortest mean plateau, else the one that won the most races; then the first of the race.

    Of a run that was stopped one knows no more than that it was slower, so a rate with such a run has no mean, and
    that it was stopped early says nothing for it.
    """
    steps = table["plateau_steps"].where(table["status"] == "emerged", np.inf)
    fastest = steps.groupby([table[c] for c in (*by, "seed")]).transform("min")
    won = np.isfinite(steps) & (steps == fastest)
    cells = table.assign(mean=steps, lost=np.isinf(steps), lost_races=~won, order=np.arange(len(table)))
    ranked = cells.groupby([*by, "lr"], as_index=False).agg(
        {"lost": "sum", "mean": "mean", "lost_races": "sum", "order": "min"}
    )
    best = ranked.sort_values(["lost", "mean", "lost_races", "order"]).drop_duplicates(by)[[*by, "lr"]]
    return table.merge(best, on=[*by, "lr"])


def shortest_mean(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """For each size the runs of the learning rate with the shortest mean plateau over seeds (D.3). A rate with a run
    that did not emerge has no mean; where no rate has one, it is the rate with which most seeds emerged.

    For runs done in full: a run that was stopped because another was faster would count as one that did not emerge.
    """
    steps = table["plateau_steps"].where(table["status"] == "emerged", np.inf)
    cells = table.assign(mean=steps, lost=np.isinf(steps)).groupby([*by, "lr"], as_index=False)
    ranked = cells.agg({"lost": "sum", "mean": "mean"})
    best = ranked.sort_values(["lost", "mean"], kind="stable").drop_duplicates(by)[[*by, "lr"]]
    return table.merge(best, on=[*by, "lr"])


def each_rate(runs: Sequence[TieredRun], rates: Sequence[float]) -> list[TieredRun]:
    """Every run once for each learning rate, all in full."""
    return [run._replace(spec=replace(run.spec, optim=replace(run.spec.optim, lr=lr))) for run in runs for lr in rates]


def stored_runs(runs: Sequence[TieredRun], store: Path) -> int:
    """How many of the runs are finished in `store`."""
    where = Store(store)
    return sum(len(stored_results(unit, where) or []) for unit in units(runs)) if store.is_dir() else 0


def plan(figure: Any, profile: Profile) -> list[Job]:
    """What a figure would run, and what that takes."""
    if not is_trained(figure):
        return figure.plan(profile)
    costs = [predicted_cost(run.spec) for run in figure.runs(profile)]
    return [
        Job(
            "run",
            len(costs),
            seconds=sum(c.seconds for c in costs),
            steps=sum(c.steps for c in costs),
            flops=sum(c.flops for c in costs),
            gpu_hours=sum(c.gpu_hours for c in costs),
        )
    ]


def settings_of(runs: Sequence[TieredRun]) -> dict[str, Any]:
    """What runs were given, by the keys of the command: a value, or the list of those that differ between runs."""
    found: dict[str, list[Any]] = {}
    for run in runs:
        for section, values in run.spec.as_dict().items():
            pairs = values.items() if isinstance(values, dict) else [("", values)]
            for key, value in pairs:
                seen = found.setdefault(f"{section}.{key}".rstrip("."), [])
                if value not in seen:
                    seen.append(value)
    return {key: seen[0] if len(seen) == 1 else seen for key, seen in found.items()}


def finished(runs: Sequence[TieredRun], store: Path, also: Sequence[str] = ()) -> pd.DataFrame:
    """A row for each run that is done in `store`: the keys laws are fitted on, status, plateau_steps, steps; and those
    settings of the model that `also` names."""
    rows = []
    where = Store(store)
    for unit in units(runs):
        for spec, done in zip(unit, stored_results(unit, where) or [], strict=False):
            o, result = spec.optim, done.result
            rows.append(
                {
                    "run_id": spec.run_id,
                    **_settings(spec, ("layers", "heads", "layer_norm", "query", *also)),
                    **{"optim": o.name, "lr": o.lr, "batch": spec.train.batch, "seed": spec.seed},
                    "thresholds": json.dumps(result.thresholds),
                    "status": result.status,
                    "plateau_steps": result.plateau_steps,
                    **result.crossing_columns,
                    "steps": result.steps,
                    "seconds": round(result.seconds, 1),
                }
            )
    return pd.DataFrame(rows)


def runs_in(table: pd.DataFrame) -> list[Claim]:
    """How many of the runs that a figure wants its table has, where the table knows."""
    if "wanted" not in table or table.empty:
        return []
    return [Claim("runs in the table", f"{table['run_id'].nunique()} of {table['wanted'].iloc[0]}")]


def curves(runs: Sequence[TieredRun], store: Path) -> pd.DataFrame:
    """The curves of all finished runs up to the steps asked for, one under the other, with the run's sizes."""
    parts = []
    where = Store(store)
    for spec in (run.spec for run in runs):
        directory = where.run(spec.run_id)
        curve = directory.curve() if stored_result(directory, spec) is not None else None
        if curve is not None:
            sizes = _settings(spec, ("heads", "layer_norm", "query")) | {"lr": spec.optim.lr, "seed": spec.seed}
            asked = curve.truncate(spec.train.max_steps)  # another figure may have wanted it longer
            parts.append(asked.to_frame().assign(run_id=spec.run_id, **sizes))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _settings(spec: RunSpec, of_model: Sequence[str]) -> dict[str, Any]:
    """The task's settings and some of the model's, as cells of a table."""
    found = asdict(spec.task) | {name: getattr(spec.model, name) for name in of_model if hasattr(spec.model, name)}
    return {k: " ".join(map(str, v)) if isinstance(v, tuple) else v for k, v in found.items()}
