"""Carry out one run in a store: cached if it is there, resumed if it was stopped, checkpointed as it goes."""

import time
from collections.abc import Callable
from typing import Any

import pandas as pd

from unstuck.spec import RunSpec

from .store import RunDirectory, Store, result_dict

CHECKPOINT_SECONDS = 20.0
CIRCUIT = 512  # sequences on which ablations are judged


def enough(status: dict[str, Any] | None, spec: RunSpec) -> dict[str, Any] | None:
    """The stored result, if it already answers what `spec` asks (the same run, another budget)."""
    result = (status or {}).get("result")
    if not result or (status or {}).get("state") != "finished":
        return None
    t = spec.train
    if result["status"] == "diverged" or result["steps"] >= t.max_steps:
        return _restated(result, spec)
    wanted = [f"{x:g}" for x in t.thresholds]
    if not wanted or any(w not in result["crossings"] for w in wanted):
        return None
    last = max(result["crossings"][w] for w in wanted)
    return _restated(result, spec) if result["steps"] >= last + t.after else None


def _restated(result: dict[str, Any], spec: RunSpec) -> dict[str, Any]:
    """A stored result in terms of the thresholds asked for now."""
    wanted = spec.thresholds
    if result["status"] == "diverged" or not wanted:
        return result
    crossings = result["crossings"]
    emerged = all(f"{x:g}" in crossings and crossings[f"{x:g}"] <= spec.train.max_steps for x in wanted)
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
            return {"run_id": spec.run_id, **stored, "cached": True}
        return {"run_id": spec.run_id, **_run(spec, directory, stop, on_row, checkpoint_seconds, keep), "cached": False}


def _run(
    spec: RunSpec,
    directory: RunDirectory,
    stop: Callable[[], bool],
    on_row: Callable[[Any], None],
    checkpoint_seconds: float,
    keep: bool,
) -> dict[str, Any]:
    from unstuck.observe.circuit import find_circuit
    from unstuck.observe.maps import attention_table
    from unstuck.training.loop import Run

    directory.write_spec(spec)
    run = Run(spec, directory.read_checkpoint())
    directory.write_status({"state": "running", "step": run.step})
    saved = time.monotonic()

    def save() -> None:
        directory.write_checkpoint(run.checkpoint())
        directory.write_curve(pd.DataFrame(run.rows))
        directory.write_status({"state": "running", "step": run.step})

    def on_step(run: Any) -> None:
        nonlocal saved
        if run.step in spec.train.maps:
            directory.write_maps(attention_table(run.model, run.sets["primary"][1], run.step))
        if time.monotonic() - saved >= checkpoint_seconds:
            save()
            saved = time.monotonic()

    if run.step == 0:
        on_step(run)
    result = run.advance(stop=stop, on_row=on_row, on_step=on_step)
    save()
    plain = result_dict(result)
    if result.status == "emerged" and hasattr(spec.task, "chance") and hasattr(run.model, "observe"):
        plain["circuit"] = find_circuit(run.model, *run.look(CIRCUIT), result.curve, spec.task.chance).as_dict()
    state = "stopped" if result.status == "stopped" else "finished"
    directory.write_status({"state": state, "step": result.steps, "result": plain})
    if result.status in ("emerged", "diverged") and not keep:
        directory.remove_checkpoint()
    return plain
