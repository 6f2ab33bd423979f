"""The rows of a watch in a run directory, where `unstuck forecast`, `report` and `serve` find them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.columns import TEST_LOSS, TRAIN_LOSS, Row
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.store.store import RunDirectory


def save_rows(
    directory: str | Path,
    rows: Sequence[Row],
    model: str,
    mark: str,
    *,
    seconds_per_step: float | None = None,
    alone: bool = False,
    known: Mapping[str, Any] | None = None,
) -> Path:
    """Write rows. Those that an earlier watch wrote there stay, up to the first step of these, so that a resumed
    training continues its curve; unless these are `alone`. `mark` names the probe, since rows of another one cannot be
    compared; rows that are alone replace those of any other. `known` of the watch goes into the status."""
    run = written_by_a_watch(directory, None if alone else mark)
    run.path.mkdir(parents=True, exist_ok=True)
    curve, before = Curve.from_rows(rows).to_frame(), None if alone else run.curve()
    if "loss" in curve and TEST_LOSS not in curve:  # the name that tables and plots of runs use
        logged = curve[TRAIN_LOSS] if TRAIN_LOSS in curve else curve["loss"]
        curve[TRAIN_LOSS] = logged.fillna(curve["loss"])
    if before is not None:
        earlier = before.rows(before.steps < curve["step"].min()).to_frame()
        curve = pd.concat([earlier, curve], ignore_index=True)
    run.write_curve(curve)
    last = int(curve["step"].iloc[-1]) if len(curve) else 0
    run.write_watched(model, last, mark, None if seconds_per_step is None else seconds_per_step * last, known)
    return run.path


def load_rows(directory: str | Path, mark: str, before: int | None = None) -> list[Row]:
    """The rows that were saved there: all, or those before a step."""
    curve = written_by_a_watch(directory, mark).curve()
    if curve is None:
        raise BadInput("directory", str(directory), "one that a Watch wrote; there is no curve in this one")
    known = curve if before is None else curve.rows(curve.steps < before)
    rows = ({str(k): float(v) for k, v in row.items()} for row in known.to_frame().to_dict("records"))
    return [{sys.intern(k): v for k, v in row.items() if v == v} for row in rows]


def written_by_a_watch(directory: str | Path, mark: str | None) -> RunDirectory:
    """A directory for rows: new, or written by a watch with the same probe, or with any if `mark` is None."""
    run = RunDirectory(Path(directory))
    if run.path.exists() and not run.path.is_dir():
        raise BadInput("directory", str(directory), "a directory; this is a file")
    status = run.status() or {"state": "watched"}
    if status.get("state") != "watched":
        raise BadInput("directory", str(directory), "a new one, or one that a Watch wrote; this one holds a run")
    if mark is not None and status.get("probe", mark) != mark:
        raise BadInput(
            "directory",
            str(directory),
            "one whose rows were measured with this probe, these targets and this vocabulary, since others cannot "
            "be compared; keep the probe beside the checkpoint, or save to another directory",
        )
    return run
