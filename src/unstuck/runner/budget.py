"""Does a stored result answer what is asked? A run's id leaves its budget out, so it may be asked for another one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unstuck.config.load import check
from unstuck.config.run import OptimSpec, RunSpec, ScheduleSpec, TrainSpec
from unstuck.store.store import Result, RunDirectory

ENDED = ("emerged", "censored", "diverged", "finished")


def stored_result(directory: RunDirectory, spec: RunSpec) -> Result | None:
    """The result on disk, in terms of `spec`, if it answers what that asks and its curve can be read."""
    result = directory.result()
    if result is None or not satisfies(result, spec) or not directory.has_curve():
        return None
    return truncate(result, spec)


def satisfies(result: Result, spec: RunSpec) -> bool:
    """Does a result already answer what `spec` asks (the same run, another budget)?"""
    if result.status not in ENDED:
        return False
    if not set(_names(spec.thresholds)) <= set(_names(result.thresholds)):
        return False  # nobody looked
    if result.status == "diverged":
        return True
    t, crossings = spec.train, result.crossings
    if t.compare and list(t.compare) != result.compared:  # ref_1, ref_2, ... are in their order
        return False
    if t.predictions and not result.predicted:
        return False
    if not {x for x in t.maps if x <= result.steps} <= set(result.mapped):
        return False
    if result.steps >= t.max_steps:
        return True
    wanted = _names(t.thresholds)
    if not wanted or any(w not in crossings for w in wanted):
        return False
    last = max(crossings[w] for w in wanted)
    return result.steps >= t.last_step(last, until_reached=_reached_in_text(result, t.thresholds))


def _names(thresholds: Sequence[float]) -> list[str]:
    return [f"{x:g}" for x in thresholds]


def _reached_in_text(result: Result, thresholds: Sequence[float]) -> bool:
    return set(_names(thresholds)) <= set(result.crossings_in_text or ())


def truncate(result: Result, spec: RunSpec) -> Result:
    """A stored result in terms of the thresholds and the budget asked for now."""
    t, wanted, end = spec.train, spec.thresholds, spec.train.max_steps
    crossings = {name: step for name, step in result.crossings.items() if step <= end}
    in_text = result.crossings_in_text
    if result.status == "diverged" and end >= result.steps:
        over = max((crossings.get(f"{x:g}", math.inf) for x in wanted), default=math.inf)
        if t.last_step(over, until_reached=_reached_in_text(result, wanted)) > result.steps:
            return result  # before it would have been over
    emerged = bool(wanted) and all(f"{x:g}" in crossings for x in wanted)
    changes: dict[str, Any] = {
        "status": ("emerged" if emerged else "censored") if wanted else "finished",
        "plateau_steps": crossings[f"{wanted[-1]:g}"] if emerged else None,
        "threshold": wanted[-1] if wanted else None,
        "crossings": crossings,
        "crossings_in_text": in_text and {name: step for name, step in in_text.items() if step <= end},
        "steps": min(result.steps, end),
    }
    return result.model_copy(update=changes)


def covering(spec: RunSpec, old: Result) -> RunSpec:
    """The specification with a budget that also covers what an earlier result says, and keeps what it kept."""
    t = spec.train
    maps = {*t.maps, *(x for x in old.mapped if x < old.steps)}  # the last is kept anyway
    train = replace(
        t,
        thresholds=tuple(sorted({*t.thresholds, *old.thresholds}, reverse=True)),
        max_steps=max(t.max_steps, old.steps),
        maps=tuple(sorted(maps)),
        predictions=t.predictions or old.predicted,
        compare=t.compare or tuple(old.compared),
    )
    return replace(spec, train=train)


def is_spec_of(stored: dict[str, Any] | None, spec: RunSpec) -> bool:
    """Is a specification on disk that of the same run, whatever its budget? Nothing that it names is loaded."""
    if stored is None:
        return False
    kinds = {"task": type(spec.task), "model": type(spec.model), "optim": OptimSpec, "train": TrainSpec}
    names = {"task": spec.task_name, "model": spec.model_name}
    try:
        parts: dict[str, Any] = {"schedule": check(ScheduleSpec, stored.get("schedule", {}), "schedule")}
        for section, kind in kinds.items():
            values = dict(stored[section])
            if section in names and Path(values.pop("name")).name != Path(names[section]).name:
                return False
            parts[section] = check(kind, values, section)
        return replace(spec, **parts, seed=stored["seed"]).run_id == spec.run_id
    except (KeyError, TypeError, ValueError):
        return False
