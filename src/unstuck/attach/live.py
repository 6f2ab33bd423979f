"""Metrics `unstuck/...` in TensorBoard and Weights & Biases, while somebody else's training writes there too.

Nothing is set up that the training does not use: the active run of W&B, a writer that is given, or, if the process has
loaded TensorBoard, an event file in the run directory. A tracker that fails is named once and left out.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from unstuck.attach.line import Line
from unstuck.attach.messages import log
from unstuck.columns import COPY_ADVANTAGE, IN_CONTEXT_SCORE, TRAIN_LOSS
from unstuck.curve import Curve
from unstuck.errors import BadInput

PREFIX = "unstuck/"
AT_STEP = f"{PREFIX}at_step"  # not `step`: the step of the training itself is the one that readers of a file look for
MOST_HEADS = 8  # heads whose gain gets a curve of its own: those that moved most
GAINS = ("attention", "induction")  # the measure whose gain is shown: the first that the curve has
#: The layout of TensorBoard's tab "custom scalars".
LAYOUT = {
    "unstuck": {
        "expected step": ["Margin", [f"{PREFIX}exit", f"{PREFIX}exit_low", f"{PREFIX}exit_high"]],
        "probability before twice the step": ["Multiline", [f"{PREFIX}probability"]],
        "gain by head": ["Multiline", [f"{PREFIX}gain/.*"]],
        "best head": ["Multiline", [f"{PREFIX}(attention|induction|previous_token)$"]],
        "copying advantage, nats": ["Multiline", [f"{PREFIX}{COPY_ADVANTAGE}"]],
    }
}
Metrics = dict[str, float]


def row_metrics(curve: Curve, row: int, heads: list[tuple[int, int]]) -> Metrics:
    """The metrics of one row: loss, the best head of each measure, and the gain of some heads since the first row."""
    found: Metrics = {}
    for name in (TRAIN_LOSS, COPY_ADVANTAGE, IN_CONTEXT_SCORE):
        if curve.has(name):
            found[name] = float(curve.values(name)[row])
    for measure in ("attention", "induction", "previous_token"):
        if measure in curve.measures:
            found[measure] = float(curve.best(measure)[row])
    if (gaining := gain_measure(curve)) is not None:
        for layer, head in heads:
            values = curve.head(gaining, layer, head)
            found[f"gain/{layer}.{head}"] = float(values[row] - values[np.isfinite(values)][0])
    return {f"{PREFIX}{name}": value for name, value in found.items() if np.isfinite(value)}


def gain_measure(curve: Curve) -> str | None:
    return next((measure for measure in GAINS if measure in curve.measures), None)


def moved_most(curve: Curve, most: int = MOST_HEADS) -> list[tuple[int, int]]:
    """The heads whose gain is largest."""
    measure = gain_measure(curve)
    if measure is None:
        return []
    values = curve.complete(measure).flat(measure)
    gains = np.abs(values[-1] - values[0]) if len(values) else np.zeros(0)
    places = curve.head_places(measure)
    return [places[i] for i in np.argsort(-gains, kind="stable")[:most].tolist()]


def forecast_metrics(line: Line) -> Metrics:
    """What is expected: the step with its interval, the probability, and since when the loss is on a plateau."""
    said, band = line.forecast, line.forecast.interval()
    found: dict[str, float | None] = {"probability": said.probability}
    if band is not None:
        found |= {"exit": said.step, "exit_low": band[0], "exit_high": band[1]}
    if line.loss is not None and line.loss.notes.loss is not None:
        found["plateau_since"] = line.loss.notes.loss.plateau_since
    return {
        f"{PREFIX}{name}": float(value) for name, value in found.items() if value is not None and np.isfinite(value)
    }


class Trackers:
    """Writes rows and forecasts to all trackers."""

    def __init__(self, given: Any = None) -> None:
        known = None if given is None else [_adapter(tracker) for tracker in given]
        self._given, self._failed = known, False
        self._own: Any = None
        self._wandb: _Wandb | None = None
        self._heads: list[tuple[int, int]] = []
        self._written = -np.inf

    def write(self, curve: Curve, line: Line, directory: Path | None) -> None:
        try:
            trackers = self._found(directory) if self._given is None else self._given
            if not trackers:
                return
            self._heads += [at for at in moved_most(curve) if at not in self._heads]
            expected, steps = forecast_metrics(line), curve.steps
            new = np.flatnonzero(steps > self._written).tolist()
            for tracker in trackers:
                tracker.write([(int(steps[i]), row_metrics(curve, i, self._heads)) for i in new], expected)
            self._written = float(steps[-1]) if len(steps) else self._written
        except Exception as e:  # a tracker never stops a training
            self._fail(e)

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            log.warning("metrics are no longer written to trackers: %s: %s", type(error).__name__, error)
        self._failed, self._given = True, []

    def _found(self, directory: Path | None) -> list[Any]:
        """The trackers that the process uses already."""
        run = getattr(sys.modules.get("wandb"), "run", None)
        if run is not None and (self._wandb is None or self._wandb.run is not run):
            self._wandb = _Wandb(run)
        if self._own is None and directory is not None and "torch.utils.tensorboard" in sys.modules:
            self._own = _TensorBoard(sys.modules["torch.utils.tensorboard"].SummaryWriter(str(directory)))
        return [tracker for tracker in (self._wandb if run is not None else None, self._own) if tracker is not None]

    def close(self) -> None:
        if self._own is not None:
            try:
                self._own.writer.close()
            except Exception as e:
                self._fail(e)


def _adapter(tracker: Any) -> Any:
    if hasattr(tracker, "add_scalar"):
        return _TensorBoard(tracker)
    if hasattr(tracker, "log") and hasattr(tracker, "define_metric"):
        return _Wandb(tracker)
    raise BadInput("trackers", tracker, "writers of TensorBoard (SummaryWriter) or runs of W&B (wandb.run)")


class _TensorBoard:
    """Every row at its step, with a layout."""

    def __init__(self, writer: Any) -> None:
        self.writer, self._laid_out = writer, False

    def write(self, rows: list[tuple[int, Metrics]], expected: Metrics) -> None:
        if not self._laid_out:
            self.writer.add_custom_scalars(LAYOUT)
            self._laid_out = True
        for step, metrics in rows:
            for name, value in metrics.items():
                self.writer.add_scalar(name, value, step)
        for name, value in expected.items():
            self.writer.add_scalar(name, value, rows[-1][0] if rows else 0)
        self.writer.flush()


class _Wandb:
    """The newest row, beside what the training logs next: W&B's own step is the training's, so it stays as it is, and
    charts are over `unstuck/at_step`."""

    def __init__(self, run: Any) -> None:
        self.run = run
        run.define_metric(AT_STEP, hidden=True)
        run.define_metric(f"{PREFIX}*", step_metric=AT_STEP)

    def write(self, rows: list[tuple[int, Metrics]], expected: Metrics) -> None:
        if rows:
            step, metrics = rows[-1]
            self.run.log({AT_STEP: step, **metrics, **expected}, commit=False)
