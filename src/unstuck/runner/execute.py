"""Carry out one run in a store: cached if it is there, resumed if it was stopped, checkpointed as it goes.

A finished result is never lost. Where more is asked of a run than its result says and no checkpoint leads on from it,
it is trained anew, on the way passing all it passed before; until then the old result and curve stay.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.config.load import check
from unstuck.config.run import OptimSpec, RunSpec, ScheduleSpec, TrainSpec
from unstuck.errors import InvalidCombination
from unstuck.store.store import Result, RunDirectory, Store

CHECKPOINT_SECONDS = 20.0
STATUS_SECONDS = 2.0  # between notes of the step a run is at
MAP_SEQUENCES = 256  # whose mean attention is kept, where what matters is positions, not tokens
CIRCUIT = 512  # sequences on which ablations are judged
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
    return result.steps >= max(last + t.after, t.at_least)


def _names(thresholds: Sequence[float]) -> list[str]:
    return [f"{x:g}" for x in thresholds]


def truncate(result: Result, spec: RunSpec) -> Result:
    """A stored result in terms of the thresholds and the budget asked for now."""
    t, wanted, end = spec.train, spec.thresholds, spec.train.max_steps
    crossings = {name: step for name, step in result.crossings.items() if step <= end}
    if result.status == "diverged" and end >= result.steps:
        over = max((crossings.get(f"{x:g}", math.inf) for x in wanted), default=math.inf)
        if max(over + t.after, t.at_least) > result.steps:
            return result  # before it would have been over
    emerged = bool(wanted) and all(f"{x:g}" in crossings for x in wanted)
    changes: dict[str, Any] = {
        "status": ("emerged" if emerged else "censored") if wanted else "finished",
        "plateau_steps": crossings[f"{wanted[-1]:g}"] if emerged else None,
        "threshold": wanted[-1] if wanted else None,
        "crossings": crossings,
        "steps": min(result.steps, end),
    }
    return result.model_copy(update=changes)


def execute(
    spec: RunSpec,
    store: Store,
    *,
    stop: Callable[[], bool] = lambda: False,
    on_row: Callable[[Any], None] = lambda run: None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    keep: bool = False,
) -> dict[str, Any]:
    """Run `spec` in `store` and return its result as plain values, with `run_id`, `cached` and `resumed_from`.

    Where another process works on the same run, `status` is "busy" and nothing is done. A run that emerged
    keeps its last checkpoint only if asked to: it is twenty megabytes, and only a larger `train.after` would
    need it.
    """
    directory = store.run(spec.run_id)
    with directory.lock() as mine:
        if not mine:
            return {"run_id": spec.run_id, "status": "busy", "cached": False}
        stored = stored_result(directory, spec)
        if spec.train.predictions and not directory.has_predictions():
            stored = None  # here, not in `stored_result`: in a committed store a finished comparison needs them no more
        if stored is not None:
            found = _at_its_last_step(stored, directory)
        else:
            found = _run(spec, directory, stop, on_row, checkpoint_seconds, keep)
        return {"run_id": spec.run_id, **found.model_dump(), "cached": stored is not None}


def _run(
    asked: RunSpec,
    directory: RunDirectory,
    stop: Callable[[], bool],
    on_row: Callable[[Any], None],
    checkpoint_seconds: float,
    keep: bool,
) -> Result:
    from unstuck.probes.circuit import find_circuit
    from unstuck.probes.maps import attention_table
    from unstuck.schedule.repetition import repetition_of
    from unstuck.training.loop import Run

    old = directory.result()
    spec = asked if old is None else _covering(asked, old)
    before = {} if old is None else {"result": old.model_dump()}
    unsigned = is_spec_of(directory.spec(), spec)  # before it is written anew
    directory.write_spec(spec)
    others = [_to_compare(spec, RunDirectory(directory.path.parent / run_id)) for run_id in spec.train.compare]
    run = directory.resume(
        lambda checkpoint: Run(spec, checkpoint, references=others, repetition=repetition_of(spec)), unsigned=unsigned
    )
    directory.write_status({"state": "running", "step": run.step, **before})
    saved = noted = time.monotonic()

    def save() -> None:
        directory.write_checkpoint(run.checkpoint())
        if old is None or run.step >= old.steps:
            directory.write_curve(pd.DataFrame(run.rows))
        directory.write_status({"state": "running", "step": run.step, **before})

    def keep_map(run: Any) -> None:
        many = MAP_SEQUENCES if hasattr(spec.task, "scored") else 1
        directory.write_maps(attention_table(run.model, run.evaluator.sets["primary"][1], run.step, sequences=many))

    def on_step(run: Any) -> None:
        nonlocal saved, noted
        if run.step in spec.train.maps:
            keep_map(run)
        now = time.monotonic()
        if now - saved >= checkpoint_seconds:
            save()
            saved = noted = time.monotonic()
        elif now - noted >= STATUS_SECONDS:
            directory.write_status({"state": "running", "step": run.step, **before})
            noted = now

    if run.step == 0:
        on_step(run)
    result = run.advance(stop=stop, on_row=on_row, on_step=on_step, at_least=0 if old is None else old.steps)
    save()
    found = Result.of(result)
    if result.status == "stopped":
        directory.write_status({"state": "stopped", "step": result.steps, **before})
        return found
    mapped = [step for step in spec.train.maps if step <= result.steps]
    if spec.train.maps and result.steps not in mapped:
        keep_map(run)
        mapped.append(result.steps)
    kept: dict[str, Any] = {"compared": list(spec.train.compare), "predicted": spec.train.predictions, "mapped": mapped}
    if result.status == "emerged" and hasattr(spec.task, "chance") and "copying" in result.curve.measures:
        circuit = find_circuit(run.model, *run.evaluator.primary(CIRCUIT), result.curve, spec.task.chance)
        kept["circuit"] = circuit.as_dict()
    if spec.train.predictions:
        directory.write_predictions(run.evaluator.predictions())
    # Last of all: it is finished when everything else is on disk.
    directory.write_curve(result.curve.to_frame())
    found = found.model_copy(update=kept)
    directory.write_status({"state": "finished", "step": result.steps, "result": found.model_dump()})
    if result.status in ("emerged", "diverged") and not keep:
        directory.remove_checkpoint()
    return _at_its_last_step(truncate(found, asked), directory)


def _at_its_last_step(result: Result, directory: RunDirectory) -> Result:
    """A result whose last values are those of its last step, where the run itself went on: without the circuit that it
    had in the end. One that is still there is said in today's words."""
    curve = directory.curve()
    if curve is None:
        return result
    if result.steps < curve["step"].max():
        last = curve[curve["step"] <= result.steps].iloc[-1].drop("step")
        final = {k: float(v) for k, v in last.items() if math.isfinite(v)}
        mapped = {"mapped": [x for x in result.mapped if x <= result.steps]} if result.mapped else {}
        return result.model_copy(update={"circuit": None, "final": final, **mapped})
    if result.circuit:
        from unstuck.probes.circuit import in_words

        return result.model_copy(update={"circuit": {**result.circuit, "says": in_words(result.circuit, curve)}})
    return result


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


def _to_compare(spec: RunSpec, other: RunDirectory) -> Any:
    """The predictions of another run, made on the evaluation set of this one: same task but for its training set."""
    predictions = other.predictions()
    theirs, mine = other.spec() or {}, spec.as_dict()
    tasks = [{k: v for k, v in s.get("task", {}).items() if k != "sequences"} for s in (theirs, mine)]
    if json.dumps(tasks[0]) != json.dumps(tasks[1]) or theirs.get("seed") != mine["seed"]:
        raise InvalidCombination(
            f"run {other.path.name} cannot be compared with: its task or seed is another, and so are the sequences it "
            "was asked about"
        )
    return predictions


def _covering(spec: RunSpec, old: Result) -> RunSpec:
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
