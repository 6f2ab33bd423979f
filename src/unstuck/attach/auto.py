"""`unstuck.watch(model, optimizer)`: a watch that finds out by itself what to measure, when, and where to write it."""

import atexit
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.attach import find
from unstuck.attach.line import Line
from unstuck.attach.live import Trackers
from unstuck.attach.losses import Losses, ModelHook
from unstuck.attach.messages import log, make_visible
from unstuck.attach.pace import Pace
from unstuck.attach.saving import load_rows, save_rows
from unstuck.attach.watch import SHORTEST, Watch
from unstuck.columns import COPY_ADVANTAGE, STEP, TRAIN_LOSS, Row
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.forecast import Forecast, Forecaster, Outcome
from unstuck.forecast.features import UNCALIBRATED
from unstuck.scalars import measure, whole

SHARE = 0.01  # of the training time, by the watch's own clock: half of the aim of 2%, since what follows a measurement,
# such as caches that must be filled again, is not on that clock
LENGTH = 48  # tokens of a random sequence that tests for induction, if the context allows it
FEW = 4  # sequences of the first batch that are kept as a probe of a model without a vocabulary
LOSS_GAP, LOSS_DENSITY = 5, 100  # steps between two rows with a loss alone, and rows while the steps grow by e
REPORT_GROWTH, REPORT_SECONDS = 1.1, 60.0  # growth of the steps, or seconds, after which the curve is saved again
EARLY_GROWTH, EARLY_STEPS = 2.0, 50  # the same growth, and steps, while time is spent in advance
NO_LOSS = 20  # steps without a loss after which the watch says what it cannot tell


def watch(model: nn.Module, optimizer: Any = None, **options: Any) -> "AutoWatch":
    """Watch a training from here on: one line before the loop, and nothing else.

        unstuck.watch(model, optimizer)

    It counts the steps of the optimiser, takes the loss from the model's output if that has one (or from
    `watch.loss(loss)`), measures the heads every so many steps in 1% of the time by its own clock, saves the curve in a
    run directory, and prints a line when something changes. Options are those of `AutoWatch`, which it returns.
    """
    return AutoWatch(model, optimizer, **options)


class AutoWatch:
    """A watch that counts steps, finds the loss, measures, saves and reports by itself. Nothing it does changes a bit
    of the training, and nothing that goes wrong with it ends the training: it is said in a warning.

    `optimizer` is any optimiser of PyTorch, also one that Accelerate has prepared; without one call `stepped()` after
    every step. A language model is tested for induction on random sequences of its vocabulary, as in `Watch`; give
    `vocabulary` if the data use only some of its tokens. `probe`, `targets`, `length`, `tokens` and `attention` are
    those of `Watch`. Without any of them a model that takes no tokens is measured on the first sequences of its first
    batch.

    `share` is the fraction of the training time that it may take; at twice the value there are twice as many rows. A
    number for `every` fixes the steps between measurements instead. `out` is the run directory; by default
    `runs/<model>-<time>`. `step` is the number of steps done before, for a training that is resumed with the same
    `out`. `trackers` are writers of TensorBoard or runs of W&B; by default the active run of W&B, and TensorBoard if
    the process uses it; `()` for none. `forecaster` makes the forecasts.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any = None,
        *,
        probe: Any = None,
        targets: Tensor | Mapping[str, Tensor] | None = None,
        vocabulary: int | Sequence[int] | None = None,
        length: int | None = None,
        tokens: Callable[[Tensor], Any] | None = None,
        attention: Callable[[nn.Module, Any], Iterable[Tensor]] | None = None,
        every: int | None = None,
        share: float = SHARE,
        out: str | Path | None = None,
        step: int = 0,
        trackers: Sequence[Any] | None = None,
        forecaster: Forecaster | None = None,
    ) -> None:
        _close_freed()
        if not isinstance(model, nn.Module):
            raise BadInput("model", model, "a torch.nn.Module")
        self.model, self.pace = model, Pace(share, every)
        self.step = whole("step", step, 0, 10**15, "the number of steps done before, 0 or more")
        self.forecaster = forecaster or Forecaster()
        self.rows: list[Row] = []
        self.watch: Watch | None = None
        self.out = None if out is None else Path(out)
        self._options = {"probe": probe, "targets": targets, "vocabulary": vocabulary, "attention": attention}
        self._options |= {"length": length, "tokens": tokens}
        self._losses, self._has_loss, self._start = Losses(), False, self.step
        self._line: Line | None = None
        self._reported = (self.step, time.monotonic())
        self._handles: list[Any] = []
        self._step_handle: Any = None
        self._why = ""  # attention is not measured
        self._mark = ""  # of what is looked at
        self._uncounted = 0.0  # seconds of a step that are not the watch's
        self.closed = find.rank() != 0  # the other processes do nothing
        if self.closed:
            return
        make_visible()
        self.trackers = Trackers(trackers)
        self._prepare()
        self._attach(optimizer)
        self._attached = True
        atexit.register(_close, weakref.ref(self))

    # -- what is measured

    def _prepare(self) -> None:
        """Make the watch and its first row; or find out why that has to wait for a batch, or cannot be done."""
        self._why = find.why_sharded(self.model) or ""
        given = any(value is not None for value in self._options.values())
        if self._why:
            log.warning("attention is not measured, since %s; the loss is", self._why)
            return
        if given:
            self.watch = self._given()
        else:
            model = find.runnable(self.model)
            self.watch, self._why = language_watch(model)
        if self.watch is not None:
            self._begin()

    def _given(self) -> Watch:
        """A watch with what the user names; a language model is tested for induction besides."""
        model, options = find.runnable(self.model), dict(self._options)
        if options["vocabulary"] is not None and options["length"] is None:
            options["length"] = min(LENGTH, find.context(model) or LENGTH)
        if options["vocabulary"] is not None and options["tokens"] is None:
            options["tokens"] = find.forms(model)[0]
        return Watch(model, **{name: value for name, value in options.items() if value is not None})

    def _begin(self) -> None:
        assert self.watch is not None
        self._mark = self.watch.seen_with
        self._choose_directory()
        row = self.watch.tried or self.watch.measure()
        self.rows.append({STEP: float(self.step), **row})
        layers = {name.rsplit("_", 1)[0] for name in row if name.startswith("row_entropy_")}
        what = "induction" if self.watch.repeated is not None else "entropies"
        if self.watch.targets:
            what = "attention to your targets"
        log.info("watching %s in %d layers of %s; the curve is in %s", what, len(layers), self._name, self.out)
        self.report()  # loads what later ones need
        for kind, work in (("look", self.watch.measure), ("report", self.report)):
            began = self.pace.clock()
            work()
            self.pace.expect(kind, self.pace.clock() - began)

    def _from_batch(self, batch: Any) -> None:
        """Make the watch when the first batch has shown how the model is called."""
        model = find.runnable(self.model)
        found = None
        if (tokens := find.token_length(batch)) is not None:
            found, self._why = language_watch(model, tokens)
        if found is None:
            try:
                found = Watch(model, batch)
            except (BadInput, RuntimeError) as e:
                log.warning("attention is not measured; the loss is. %s", self._why or e)
                return
            log.info("no induction test (%s): entropies are measured, from which no end is predicted", self._why)
        self.watch = found
        self._begin()

    # -- what the training loop does

    def _attach(self, optimizer: Any) -> None:
        hook = ModelHook(self._losses, None if self.watch is not None or self._is_hopeless else FEW)
        self._hook = hook
        self._handles.append(self.model.register_forward_hook(hook, with_kwargs=True))
        if optimizer is None:
            return
        while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
            optimizer = inner  # of Accelerate
        if not hasattr(optimizer, "register_step_post_hook"):
            raise BadInput("optimizer", optimizer, "a torch.optim.Optimizer, or None to call `stepped()` yourself")
        self._step_handle = optimizer.register_step_post_hook(lambda *_: self.stepped())

    @property
    def _is_hopeless(self) -> bool:
        return find.why_sharded(self.model) is not None

    def loss(self, loss: Any) -> None:
        """The loss of this step, a number or a tensor, if the model's output has none; before or after the optimiser's
        step. It is read when a row is written, not before."""
        if not self.closed:
            self._losses.told(loss)

    def logged(self, **measures: Any) -> None:
        """Numbers that were logged at this step, such as `eval_loss`; they go into its row. A loss of the model's own
        steps counts more than a logged `train_loss`."""
        if self.closed:
            return
        known = {name: measure(name, value) for name, value in measures.items()}
        if self._losses.seen:
            known.pop(TRAIN_LOSS, None)
        if known:
            self._row().update(known)
            self._has_loss = True

    def stepped(self, step: int | None = None) -> None:
        """The optimiser has made a step; by default the next one."""
        if self.closed:
            return
        began, spent, self._uncounted = self.pace.clock(), self.pace.spent, 0.0
        try:
            self._stepped(self.step + 1 if step is None else step)
        except Exception as e:  # never a reason to stop training
            log.warning("the watch ends at step %s, and training goes on: %s: %s", self.step, type(e).__name__, e)
            self.close(last=False, within_step=True)
        # With all that is beside measurements and reports.
        self.pace.spent = spent + self.pace.clock() - began - self._uncounted

    def _stepped(self, step: int) -> None:
        if step <= self.step:  # several batches may make one step
            return
        if self.pace.trained == 0.0:
            self.pace.begin(self.step)
        self.step = step
        self._losses.step()
        if self.watch is None and self._hook.batch is not None:
            batch, self._hook.batch = self._hook.batch, None
            began = self.pace.clock()
            self._from_batch(batch)
            self._uncounted += self.pace.clock() - began  # once, as when the watch is made
        if self.watch is not None and self.pace.is_due(step):
            self._look()
        elif self._is_loss_due(step):
            self._row()
        if step == self._start + NO_LOSS and not self._losses.seen and not self._has_loss:
            self._say_without_loss()
        self._maybe_report()

    def _look(self) -> None:
        assert self.watch is not None
        began = self.pace.clock()
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the training's own work, which does not count as the measurement's
        self._uncounted += self.pace.clock() - began
        began = self.pace.clock()
        row = self._row()
        try:
            row.update(self.watch.measure())
        except Exception as e:  # such as a lack of memory
            log.warning("attention is no longer measured from step %d on: %s", self.step, e)
            self.watch = None
        self.pace.took("look", self.pace.clock() - began)
        self.pace.last = self.step

    def _is_loss_due(self, step: int) -> bool:
        if self.pace.every is not None and self.watch is not None:
            return False
        last = self.rows[-1][STEP] if self.rows else 0.0
        return self._losses.seen and step - last >= max(LOSS_GAP, step // LOSS_DENSITY)

    def _row(self) -> Row:
        """The row of this step, with the mean loss since the last one."""
        if not self.rows or self.rows[-1][STEP] != self.step:
            self.rows.append({STEP: float(self.step)})
        loss = self._losses.take()
        if loss is not None:
            self.rows[-1][TRAIN_LOSS] = loss
        return self.rows[-1]

    def _say_without_loss(self) -> None:
        can = "whether and when induction heads form" if self._tests_induction else "how attention moves"
        log.info(
            "no loss is seen: %s can be told, but not whether the loss is on a plateau; `watch.loss(loss)` in the loop "
            "gives it",
            can if self.watch is not None else "nothing",
        )

    @property
    def _tests_induction(self) -> bool:
        return self.watch is not None and self.watch.repeated is not None

    # -- what it tells

    @property
    def curve(self) -> Curve:
        """What was measured so far, one row per measurement."""
        return Curve.from_rows(self.rows)

    def forecast(self) -> Forecast:
        """When will the run leave its plateau, or form induction heads? Too early to tell where nothing is measured
        yet, as in processes other than the first."""
        if not self.rows:
            return Forecast(Outcome.TOO_EARLY, float(self.step), UNCALIBRATED)
        return self.forecaster.predict(self.curve)

    def _maybe_report(self) -> None:
        step, then = self._reported
        early = self.pace.every is None and not self.pace.has_earned("report")
        next_step = max(EARLY_GROWTH * step, step + EARLY_STEPS) if early else REPORT_GROWTH * step + 1
        grown = self.step >= next_step or time.monotonic() - then >= REPORT_SECONDS
        if grown and self.rows and self.rows[-1][STEP] == self.step and self.pace.allows("report"):
            began = self.pace.clock()
            self.report()
            self.pace.took("report", self.pace.clock() - began)

    def report(self) -> None:
        """Save the curve, write to trackers, and print a line if something has changed."""
        self._reported = (self.step, time.monotonic())
        self.save()
        curve = self.curve
        try:
            said = self.forecaster.predict(curve)
        except BadInput:  # neither a loss nor a measure of heads yet
            return
        line = Line.of(curve, said, self.pace.seconds_per_step(self.step))
        if line.is_news_after(self._line):
            log.info("%s", line)
            self._line = line
        self.trackers.write(curve, line, self.out)

    @property
    def _name(self) -> str:
        return type(find.runnable(self.model)).__name__

    def _choose_directory(self) -> None:
        """A directory of its own: new, or that of the training that is resumed."""
        stem = self.out or Path("runs") / f"{self._name}-{datetime.now():%Y%m%d-%H%M%S}"
        self.out = stem
        for again in range(2, 1000):
            if not self.out.exists():
                return
            if self.step:
                try:
                    self.rows = load_rows(self.out, self._mark, self.step)
                    return
                except BadInput as e:
                    log.warning("the earlier rows are not continued: %s", e)
            self.out = stem.with_name(f"{stem.name}-{again}")

    def save(self) -> Path | None:
        """Write the curve to the run directory; None if there is nothing to write, or it cannot be written."""
        if not self.rows or self.closed:
            return None
        if self.out is None or (self.watch is None and not self.out.exists()):
            self._choose_directory()
        assert self.out is not None
        try:
            pace = self.pace.seconds_per_step(self.step)
            return save_rows(self.out, self.rows, self._name, self._mark, seconds_per_step=pace, alone=True)
        except OSError as e:
            log.warning("the curve is not saved: %s", e)
            return None

    def __del__(self) -> None:
        """Kept to be closed later, since here, in the midst of any other code, nothing may be computed or written."""
        if getattr(self, "_attached", False) and not self.closed:  # not one that was refused
            _freed.append(self)

    def close(self, *, last: bool = True, within_step: bool = False) -> None:
        """Detach from model and optimiser, measure a `last` time, save the curve, and say what it came to. At the end
        of the process it is closed without a last measurement. `within_step`: PyTorch goes through the optimiser's
        hooks, of which none may be removed then."""
        if self.closed:
            return
        if self._step_handle is not None and not within_step:
            self._step_handle.remove()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        try:
            if last and self.watch is not None and self.rows[-1][STEP] != self.step:
                self._look()
            if self.rows and self._reported[0] != self.step:
                self.report()
        except Exception as e:  # such as a full disk at the end of a training
            log.warning("the last rows are not saved: %s: %s", type(e).__name__, e)
        self.closed = True
        self.trackers.close()


_freed: list[AutoWatch] = []  # watches of trainings whose function has returned; closed by the next one, or at the end


def _close_freed() -> None:
    while _freed:
        _freed.pop().close(last=False)


def _close(reference: "weakref.ref[AutoWatch]") -> None:
    found = reference()
    if found is not None:
        found.close(last=False)
    _close_freed()


def language_watch(model: nn.Module, seen: int | None = None) -> tuple[Watch | None, str]:
    """A watch that tests a language model for induction, or None, and why there is none. `seen` is the length of a
    batch that the model has taken, for a model that does not tell its context: on a GPU a position beyond it would end
    the process."""
    known = find.vocabulary(model)
    if known is None or known < 2:
        return None, "the model has no embedding of tokens"
    longest = find.context(model) or seen
    on_cpu = all(p.device.type == "cpu" for p in model.parameters())
    if longest is None and not on_cpu:
        return None, "the model does not tell the length of its context"
    lengths = [min(LENGTH, longest or LENGTH)]
    lengths += [length for length in (24, 12, SHORTEST) if length < lengths[0]] if on_cpu else []
    why = f"its context is {longest}, and the test needs {SHORTEST}"
    for length in lengths:
        found: Watch | None = None
        for form in find.forms(model) if length >= SHORTEST else ():
            try:
                tried = Watch(model, vocabulary=known, length=length, tokens=form)
            except (BadInput, RuntimeError) as e:
                why = str(e)
                continue
            if COPY_ADVANTAGE in tried.tried:
                return tried, ""
            found = found or tried
        if found is not None:
            return found, ""
    return None, why
