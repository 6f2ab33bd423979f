"""Carry out one run in a store: cached if it is there, resumed if it was stopped, checkpointed as it goes.

A finished result is never lost. Where more is asked of a run than its result says and no checkpoint leads on from it,
it is trained anew, on the way passing all it passed before; until then the old result and curve stay.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from unstuck.config import RunSpec
from unstuck.errors import Impossible
from unstuck.store.store import RunDirectory, Store, result_dict, watched

CHECKPOINT_SECONDS = 20.0
STATUS_SECONDS = 2.0  # between notes of the step a run is at
MAP_SEQUENCES = 256  # whose mean attention is kept, where what matters is positions, not tokens
CIRCUIT = 512  # sequences on which ablations are judged
ENDED = ("emerged", "censored", "diverged", "finished")


def enough(status: dict[str, Any] | None, spec: RunSpec) -> dict[str, Any] | None:
    """The stored result, if it already answers what `spec` asks (the same run, another budget)."""
    result = (status or {}).get("result")
    if not result or result["status"] not in ENDED:
        return None
    if not set(_names(spec.thresholds)) <= set(_names(watched(result))):
        return None  # nobody looked
    if result["status"] == "diverged":
        return _restated(result, spec)
    t, crossings = spec.train, result["crossings"]
    if t.compare and list(t.compare) != result.get("compared", []):  # ref_1, ref_2, ... are in their order
        return None
    if t.predictions and not result.get("predicted"):
        return None
    if not {x for x in t.maps if x <= result["steps"]} <= set(result.get("mapped", [])):
        return None
    if result["steps"] >= t.max_steps:
        return _restated(result, spec)
    wanted = _names(t.thresholds)
    if not wanted or any(w not in crossings for w in wanted):
        return None
    last = max(crossings[w] for w in wanted)
    return _restated(result, spec) if result["steps"] >= max(last + t.after, t.at_least) else None


def _names(thresholds: Sequence[float]) -> list[str]:
    return [f"{x:g}" for x in thresholds]


def _restated(result: dict[str, Any], spec: RunSpec) -> dict[str, Any]:
    """A stored result in terms of the thresholds and the budget asked for now."""
    t, wanted, end = spec.train, spec.thresholds, spec.train.max_steps
    crossings = {name: step for name, step in result["crossings"].items() if step <= end}
    if result["status"] == "diverged" and end >= result["steps"]:
        over = max((crossings.get(f"{x:g}", math.inf) for x in wanted), default=math.inf)
        if max(over + t.after, t.at_least) > result["steps"]:
            return result  # before it would have been over
    result = {**result, "crossings": crossings, "steps": min(result["steps"], end)}
    if not wanted:
        return {**result, "status": "finished", "plateau_steps": None, "threshold": None}
    emerged = all(f"{x:g}" in crossings for x in wanted)
    plateau = crossings[f"{wanted[-1]:g}"] if emerged else None
    return {**result, "status": "emerged" if emerged else "censored", "plateau_steps": plateau, "threshold": wanted[-1]}


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
        stored = enough(directory.status(), spec)
        if stored is not None:
            return {"run_id": spec.run_id, **_as_of_then(stored, directory), "cached": True}
        return {"run_id": spec.run_id, **_run(spec, directory, stop, on_row, checkpoint_seconds, keep), "cached": False}


def _run(
    asked: RunSpec,
    directory: RunDirectory,
    stop: Callable[[], bool],
    on_row: Callable[[Any], None],
    checkpoint_seconds: float,
    keep: bool,
) -> dict[str, Any]:
    from unstuck.probes.circuit import find_circuit
    from unstuck.probes.maps import attention_table
    from unstuck.schedule.repetition import repetition_of
    from unstuck.training.loop import Run

    old = (directory.status() or {}).get("result")
    spec = asked if old is None else _covering(asked, old)
    before = {} if old is None else {"result": old}
    directory.write_spec(spec)
    others = [_to_compare(spec, RunDirectory(directory.path.parent / run_id)) for run_id in spec.train.compare]
    run = directory.resume(lambda checkpoint: Run(spec, checkpoint, references=others, repetition=repetition_of(spec)))
    directory.write_status({"state": "running", "step": run.step, **before})
    saved = noted = time.monotonic()

    def save() -> None:
        directory.write_checkpoint(run.checkpoint())
        if old is None or run.step >= old["steps"]:
            directory.write_curve(pd.DataFrame(run.rows))
        directory.write_status({"state": "running", "step": run.step, **before})

    def keep_map(run: Any) -> None:
        many = MAP_SEQUENCES if hasattr(spec.task, "scored") else 1
        directory.write_maps(attention_table(run.model, run.looks.sets["primary"][1], run.step, sequences=many))

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
    result = run.advance(stop=stop, on_row=on_row, on_step=on_step, at_least=0 if old is None else old["steps"])
    save()
    if result.status == "stopped":
        directory.write_status({"state": "stopped", "step": result.steps, **before})
        return result_dict(result)
    mapped = [step for step in spec.train.maps if step <= result.steps]
    if spec.train.maps and result.steps not in mapped:
        keep_map(run)
        mapped.append(result.steps)
    plain = result_dict(result)
    if result.status == "emerged" and hasattr(spec.task, "chance") and "copying" in result.curve.measures:
        plain["circuit"] = find_circuit(
            run.model, *run.looks.primary(CIRCUIT), result.curve, spec.task.chance
        ).as_dict()
    if spec.train.predictions:
        directory.write_predictions(run.looks.predictions())
    kept = spec.train
    plain |= {"compared": list(kept.compare), "predicted": kept.predictions, "mapped": mapped}
    directory.write_status({"state": "finished", "step": result.steps, "result": plain})
    if result.status in ("emerged", "diverged") and not keep:
        directory.remove_checkpoint()
    return _as_of_then(_restated(plain, asked), directory)


def _as_of_then(result: dict[str, Any], directory: RunDirectory) -> dict[str, Any]:
    """A result whose last values are those of its last step, where the run itself went on: without the circuit that it
    had in the end. One that is still there is said in today's words."""
    curve = directory.curve()
    if curve is None:
        return result
    if result["steps"] < curve["step"].max():
        last = curve[curve["step"] <= result["steps"]].iloc[-1].drop("step")
        final = {k: float(v) for k, v in last.items() if math.isfinite(v)}
        mapped = {"mapped": [x for x in result["mapped"] if x <= result["steps"]]} if "mapped" in result else {}
        return {**{k: v for k, v in result.items() if k != "circuit"}, "final": final, **mapped}
    if result.get("circuit"):
        from unstuck.probes.circuit import in_words

        return {**result, "circuit": {**result["circuit"], "says": in_words(result["circuit"], curve)}}
    return result


def _to_compare(spec: RunSpec, other: RunDirectory) -> Any:
    """The predictions of another run, made on the evaluation set of this one: same task but for its training set."""
    predictions = other.predictions()
    theirs, mine = other.spec() or {}, spec.as_dict()
    tasks = [{k: v for k, v in s.get("task", {}).items() if k != "sequences"} for s in (theirs, mine)]
    if json.dumps(tasks[0]) != json.dumps(tasks[1]) or theirs.get("seed") != mine["seed"]:
        raise Impossible(
            f"run {other.path.name} cannot be compared with: its task or seed is another, and so are the sequences it "
            "was asked about"
        )
    return predictions


def _covering(spec: RunSpec, old: dict[str, Any]) -> RunSpec:
    """The specification with a budget that also covers what an earlier result says, and keeps what it kept."""
    t = spec.train
    train = replace(
        t,
        thresholds=tuple(sorted({*t.thresholds, *watched(old)}, reverse=True)),
        max_steps=max(t.max_steps, old["steps"]),
        maps=tuple(
            sorted({*t.maps, *(x for x in old.get("mapped", []) if x < old["steps"])})
        ),  # the last is kept anyway
        predictions=t.predictions or old.get("predicted", False),
        compare=t.compare or tuple(old.get("compared", ())),
    )
    return replace(spec, train=train)
