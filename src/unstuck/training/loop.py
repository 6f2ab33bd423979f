"""The training loop: fresh batches, one optimiser step each, rows of a curve, checkpoints; stops at emergence.

The same specification, seed and number of threads give the same curve bit for bit, also when the run is stopped or
killed and goes on from its checkpoint: everything that the next step depends on is in `Checkpoint`.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.columns import (
    COPY_IN_TEXT,
    EVALUATED,
    GRAD_NORM,
    TEST_LOSS,
    TRAIN_LOSS,
    deciding_column,
    measure_column,
    reference_columns,
    renamed_row,
)
from unstuck.config import RunSpec
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.tasks.task import Batch, onto, world_on

from .device import numbers, on_device, steps_between_reads
from .emergence import Evaluation, next_measurement, tracker_of
from .evaluator import Evaluator
from .optimizers import optimizer_of, schedule_of
from .repetition import ConstantRepetition
from .result import Checkpoint, RunResult, Status
from .seeds import stream, stream_seed

Reading = tuple[Tensor | float, Tensor | float]  # a step's loss, and the measure that decides


def _exploded(loss: float) -> bool:
    return not math.isfinite(loss) or loss > 1e6


def check_device(spec: RunSpec) -> str:
    """The device of a run, if this machine has it; the one that a sweep is started on need not."""
    if spec.train.device == "cuda" and not torch.cuda.is_available():
        raise BadInput("train.device", "cuda", "cpu or auto: PyTorch sees no CUDA device here")
    return spec.train.device


class Run:
    """A run under way: `advance` it to its end, or until a stop is asked for; `checkpoint` at any step."""

    def __init__(
        self,
        spec: RunSpec,
        checkpoint: Checkpoint | None = None,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
        references: Sequence[Tensor] = (),
        repetition: ConstantRepetition | None = None,
    ) -> None:
        torch.set_num_threads(spec.train.threads)
        if torch.get_float32_matmul_precision() != spec.train.matmul:
            torch.set_float32_matmul_precision(spec.train.matmul)
        self.spec, self.task = spec, spec.task
        self.device = check_device(spec)
        world = self.task.world(stream(spec.seed, "world"))  # the same on every device
        self.world = world_on(world, self.device)
        with torch.random.fork_rng(devices=[]):  # for models of others, which may not draw from what they are handed
            torch.default_generator.manual_seed(stream_seed(spec.seed, "init of others"))
            self.model = spec.model.build(self.task, stream(spec.seed, "init")).to(self.device)
        self.optimizer = (optimizer or partial(optimizer_of, spec))(self.model)
        self.schedule = schedule_of(spec, self.optimizer)
        if repetition is None and spec.schedule.name != "none":
            raise ValueError("a run with a schedule needs the `repetition` that follows it")
        self.repetition = repetition or ConstantRepetition(self.task)
        self.dropout = getattr(spec.model, "dropout", 0) > 0
        once_a_pass = getattr(spec.model, "dropout_in", "all") == "first of a pass"
        self.dropout_every = self.task.steps_a_pass(spec.train.batch) if once_a_pass else 1  # updates
        self.model.eval()  # but in a training step
        self.data = stream(spec.seed, "data", self.device)
        self.evaluator = Evaluator(spec, self.model, world, self.device, references)
        self.tracker = tracker_of(spec)
        #: Where copying decides: the same thresholds of copying at the end of a text, which are recorded beside.
        self.in_text = tracker_of(spec) if self.task.decides == "copy_advantage" else None
        self.deciding = deciding_column(self.task.decides)  # the column that ends the plateau
        self.measured_in_training = self.task.decides == "accuracy"  # of a batch, beside its loss
        self.step, self.next_row = 0, 0
        self.rows: list[dict[str, float]] = []
        self.pending, self.pending_measure = (0.0, 0), 0.0
        self.read_every = steps_between_reads(spec)
        self.unread: list[Reading] = []  # of the steps since the last read
        self.grad_norm = math.nan
        self.seconds, self.evaluating = 0.0, 0.0
        self.resumed_from = 0
        if checkpoint is not None and self.continues(checkpoint):
            self._restore(checkpoint)

    # -- one step

    def _batch(self) -> Batch:
        with on_device(self.device):
            drawn = self.repetition.task.batch(self.step, self.spec.train.batch, self.data, self.world)
        return Batch(*(onto(x, self.device) for x in drawn))

    def _train_step(self) -> None:
        """One step; its loss, and the measure that decides (the loss again if a batch does not tell that), stay on the
        device until they are read."""
        begun = time.perf_counter()
        self.repetition.advise(
            self.step,
            loss=lambda: self.evaluator.evaluate("advice")["loss"],
            attention=lambda: self.evaluator.observe()[1],
        )
        self.evaluating += time.perf_counter() - begun
        batch = self._batch()
        self.model.train(self.step % self.dropout_every == 0)  # what training mode changes here is dropout
        if self.dropout:  # its noise follows from the step alone, so that a resumed run has the same
            torch.manual_seed(stream_seed(self.spec.seed, f"dropout {self.step}"))
        outputs = self.model(batch.inputs)
        loss = self.task.losses(outputs, batch.targets).mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.spec.optim.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.spec.optim.clip)
        self.optimizer.step()
        self.model.eval()
        self.step += 1
        if self.schedule is not None and self.step % self.task.steps_a_pass(self.spec.train.batch) == 0:
            begun = time.perf_counter()
            self.schedule.step(self.evaluator.evaluate("primary")["loss"])
            self.evaluating += time.perf_counter() - begun
        measure = loss = loss.detach()
        if self.measured_in_training:
            measure = self.task.measures(outputs.detach(), batch)[self.task.decides].mean()
        self.unread.append((loss, measure))

    def _readings(self) -> list[tuple[float, float]]:
        """What has not been read yet, from the device at once."""
        found = numbers([x for pair in self.unread for x in pair])
        return list(zip(found[::2], found[1::2], strict=True))

    def read(self) -> list[tuple[float, float]]:
        """Read the losses and measures of the steps since the last read, and count them."""
        found, self.unread = self._readings(), []
        for loss, measure in found:
            self.repetition.learnt(loss)
            self.pending = (self.pending[0] + loss, self.pending[1] + 1)
            self.pending_measure += measure if self.measured_in_training else 0.0
            self.tracker.trained(measure)
        return found

    def _grad_norm(self) -> float:
        """Of the last step: gradients stay until the next one; right after a restart only the stored norm is there."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        if not gradients:
            return self.grad_norm
        return math.sqrt(sum(numbers([g.square().sum() for g in gradients])))

    def _add_row(self, on_row: Callable[["Run"], None], *, full: bool) -> None:
        begun = time.perf_counter()
        total, count = self.pending
        row = {"step": self.step, TRAIN_LOSS: total / count if count else math.nan}
        if self.measured_in_training:
            row[measure_column("train", self.task.decides)] = self.pending_measure / count if count else math.nan
        measures, attention = self.evaluator.all(full=full)
        row |= {**measures, GRAD_NORM: self._grad_norm(), **attention, **self.repetition.columns}
        self.rows.append(row)
        self.pending, self.pending_measure = (0.0, 0), 0.0
        self.tracker.evaluated(self.step, row[self.deciding], full=full)
        if self.in_text is not None:
            self.in_text.evaluated(self.step, row[COPY_IN_TEXT], full=full)
        self.next_row = next_measurement(self.step, self.spec.train.probe_every)
        self.evaluating += time.perf_counter() - begun
        on_row(self)

    # -- the whole

    def advance(
        self,
        *,
        stop: Callable[[], bool] = lambda: False,
        on_row: Callable[["Run"], None] = lambda run: None,
        on_step: Callable[["Run"], None] = lambda run: None,
        at_least: int = 0,
    ) -> RunResult:
        """Train until emergence (and `train.after` steps more, `at_least` so many in all, and until `train.until` is
        reached), until `train.max_steps`, divergence, or `stop()`."""
        at_least = max(at_least, self.spec.train.at_least)
        begun, before = time.perf_counter(), self.seconds
        if not self.rows:
            self._add_row(on_row, full=self.tracker.wants_full(0))
        while (status := self._ended(at_least, stop)) is None:
            self._train_step()
            if self._due():
                if any(_exploded(loss) for loss, _ in self.read()):
                    status = "diverged"
                    break
                full = self.tracker.wants_full(self.step)
                if full or self.step >= self.next_row:
                    self._add_row(on_row, full=full)
            self.seconds = before + time.perf_counter() - begun
            on_step(self)
        if status not in ("stopped", "diverged") and self.rows[-1]["step"] != self.step:
            self.read()
            self._add_row(on_row, full=True)
        if _exploded(self.rows[-1][TEST_LOSS]):
            status = "diverged"
        elif status == "censored" and self.tracker.last_crossing is not None:
            status = "emerged"  # as the last evaluation shows
        self.seconds = before + time.perf_counter() - begun
        return self.result(status)

    def _due(self) -> bool:
        """Are losses to be read after this step? Always at the same steps, also in a run that is resumed."""
        return self.step % self.read_every == 0 or self.step >= min(self.next_row, self.spec.train.max_steps)

    def _ended(self, at_least: int, stop: Callable[[], bool]) -> Status | None:
        """What the run has come to at this step, or None where it goes on."""
        t, crossing, last = self.spec.train, self.tracker.last_crossing, self.rows[-1]
        if self.step and last["step"] == self.step and _exploded(last[TEST_LOSS]):
            return "diverged"
        if crossing is not None:
            reached = self.in_text is not None and self.in_text.last_crossing is not None
            if self.step >= max(t.last_step(crossing, until_reached=reached), at_least):
                return "emerged"
        if self.step >= t.max_steps:
            return ("censored" if crossing is None else "emerged") if t.thresholds else "finished"
        return "stopped" if stop() else None

    def result(self, status: Status) -> RunResult:
        thresholds = self.tracker.thresholds
        plateau = self.tracker.last_crossing if status == "emerged" else None
        return RunResult(
            status=status,
            plateau_steps=plateau,
            threshold=thresholds[-1] if thresholds else None,
            crossings=dict(self.tracker.crossings),
            crossings_in_text=None if self.in_text is None else dict(self.in_text.crossings),
            watched=list(thresholds),
            steps=self.step,
            final={k: v for k, v in self.rows[-1].items() if k != "step" and math.isfinite(v)},
            seconds=self.seconds,
            resumed_from=self.resumed_from,
            evaluation_share=self.evaluating / max(self.seconds, 1e-9),
            curve=Curve.from_rows(self.rows),
        )

    # -- stopping and going on

    def _seen(self, c: Checkpoint) -> list[Evaluation]:
        """The evaluations that a checkpoint's rows record."""
        size = self.evaluator.size("primary")
        return [(int(r["step"]), r[self.deciding], r[EVALUATED] == size) for r in c.rows]

    def continues(self, c: Checkpoint) -> bool:
        """Can this run go on from a checkpoint? Not if it asks for what may have been passed unseen."""
        before = self.tracker.restore(c.watch, self.tracker.thresholds, self._seen(c))
        new = set(self.tracker.thresholds) - set(c.watch["thresholds"])
        unseen = [x for x in self.spec.train.maps if x <= c.step and x not in c.maps]
        references = self.evaluator.references
        uncompared = not reference_columns([0.0] * len(references)).keys() <= c.rows[0].keys()
        others = bool(references) and c.compare not in (None, list(self.spec.train.compare))
        return not any(before.missed(threshold) for threshold in new) and not (unseen or uncompared or others)

    def checkpoint(self) -> Checkpoint:
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optim.{i}.{k}": v for k, v in state.items() if isinstance(v, Tensor)}
        tensors["rng.data"] = self.data.get_state()
        tensors = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}  # tied ones, each for itself
        return Checkpoint(
            step=self.step,
            tensors=tensors,
            watch=self.tracker.state(),
            rows=list(self.rows),
            pending=self.pending,
            next_row=self.next_row,
            grad_norm=self._grad_norm(),
            seconds=self.seconds,
            evaluating=self.evaluating,
            pending_measure=self.pending_measure,
            schedule=self._schedule_state(),
            maps=list(self.spec.train.maps),
            diversity=self.repetition.state_dict(),
            compare=list(self.spec.train.compare),
            unread=self._readings(),
        )

    def _schedule_state(self) -> dict[str, Any]:
        if self.schedule is None:
            return {}
        plain = {k: v for k, v in self.schedule.state_dict().items() if isinstance(v, (int, float, str, bool))}
        return {"lr": self.optimizer.param_groups[0]["lr"], "state": plain}

    def _restore(self, c: Checkpoint) -> None:
        self.model.load_state_dict(
            {k.removeprefix("model."): v for k, v in c.tensors.items() if k.startswith("model.")}
        )
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in c.tensors.items():
            if key.startswith("optim."):
                _, i, name = key.split(".", 2)
                state.setdefault(int(i), {})[name] = value.clone()
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        if self.schedule is not None and c.schedule:
            for group in self.optimizer.param_groups:
                group["lr"] = c.schedule["lr"]
            self.schedule.load_state_dict(c.schedule["state"])
        if c.diversity:
            self.repetition.load_state_dict(c.diversity)
        self.data.set_state(c.tensors["rng.data"])
        self.tracker = self.tracker.restore(c.watch, self.tracker.thresholds, self._seen(c))
        self.step, self.next_row = c.step, c.next_row
        self.unread = [(loss, measure) for loss, measure in c.unread]
        self.rows = [renamed_row(row, "run") for row in c.rows]
        if self.in_text is not None:
            for row in self.rows:
                self.in_text.evaluated(int(row["step"]), row[COPY_IN_TEXT], full=True)
        self.grad_norm, self.evaluating, self.pending_measure = c.grad_norm, c.evaluating, c.pending_measure
        self.pending, self.seconds, self.resumed_from = tuple(c.pending), c.seconds, c.step  # type: ignore[assignment]
