"""`unstuck.watch(model, optimizer)`: a watch that finds out by itself what to measure, when, and where to write it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.attach import find
from unstuck.attach.choice import batch_watch, chosen_watch, language_watch, watch_on
from unstuck.attach.closing import close_at_exit, close_freed, close_later
from unstuck.attach.losses import FirstBatch, Losses, ModelHook
from unstuck.attach.messages import log, make_visible
from unstuck.attach.pace import SHORTEST_GAP, Pace
from unstuck.attach.reports import Reports
from unstuck.attach.run_files import RunFiles
from unstuck.attach.sizes import sizes_of
from unstuck.attach.watch import Watch
from unstuck.columns import STEP, TRAIN_LOSS, Row
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.forecast import Forecast, Forecaster, Outcome
from unstuck.forecast.features import UNCALIBRATED
from unstuck.scalars import measure, whole

SHARE = 0.01  # of the training time, by the watch's own clock: half of the aim of 2%, since what follows a measurement,
# such as caches that must be filled again, is not on that clock
MOST_TOKENS = 512  # of the first batch from which the induction test is drawn: the most frequent, learnt the earliest
FEW = 4  # sequences of the first batch that are kept as a probe of a model without a vocabulary
LOSS_GAP, LOSS_DENSITY = 5, 100  # steps between two rows with a loss alone, and rows while the steps grow by e
TO_FORECAST = "for one, pass probe= (a few sequences) and targets= (the tokens that matter in them)"
NO_LOSS = 20  # steps without a loss after which the watch says what it cannot know
NO_STEP = 20  # forward passes without a counted step after which it says that nothing is recorded
ACCUMULATED = 1000  # the same with an optimiser of the model, which may accumulate gradients over many batches


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
    every step. A language model is tested for induction, as in `Watch`, on random sequences of the tokens that occur in
    its first batch, if these are enough for sequences without repeats, and else of its vocabulary; `vocabulary` names
    others. `probe`, `targets`, `length`, `tokens` and `attention` are
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
        close_freed()
        swapped = "; model and optimizer are swapped" if isinstance(optimizer, nn.Module) else ""
        if not isinstance(model, nn.Module):
            raise BadInput("model", model, f"a torch.nn.Module{swapped}")
        self.model, self.pace = model, Pace(share, every)
        self.step = whole("step", step, 0, 10**15, "the number of steps done before, 0 or more")
        self.forecaster = forecaster or Forecaster()
        self.rows: list[Row] = []
        self.watch: Watch | None = None
        self._options = {"probe": probe, "targets": targets, "vocabulary": vocabulary, "attention": attention}
        self._options |= {"length": length, "tokens": tokens}
        self._files = RunFiles(None if out is None else Path(out), type(find.runnable(model)).__name__)
        self._losses, self._has_loss, self._start = Losses(), False, self.step
        self._hook = ModelHook()
        self._handles: list[Any] = []
        self._step_handle: Any = None
        self._uncounted = 0.0  # seconds of a step that are not the watch's
        self._said_pause = False
        self._draws_again = False  # the induction test, from the tokens of the first batch
        self.closed = find.rank() != 0  # the other processes do nothing
        if self.closed:
            return
        make_visible()
        self._reports = Reports(self._files, self.pace, self.forecaster, trackers)
        self._reports.begin(self.step)
        self._prepare()
        self._attach(optimizer)
        self._attached = True
        close_at_exit(self)

    # -- what is measured

    def _prepare(self) -> None:
        """Make the watch and its first row, unless that has to wait for a batch or cannot be done."""
        if why := find.why_sharded(self.model):
            log.warning("attention is not measured, since %s; the loss is", why)
            return
        model = find.runnable(self.model)
        if any(value is not None for value in self._options.values()):
            self.watch = chosen_watch(model, self._options)
        else:
            self.watch, _ = language_watch(model)
            self._draws_again = self.watch is not None
            self._go_on_with_saved_tokens()
        if self.watch is not None:
            self._begin(self.watch)

    def _go_on_with_saved_tokens(self) -> None:
        """The test of a training that is resumed is drawn from the tokens that it was drawn from before."""
        tokens = self._files.saved_tokens() if self._start else None
        if tokens is not None:
            self._draw_from(tokens)

    def _draw_from(self, tokens: list[int]) -> bool:
        """Draw the test for induction from these tokens, if that can be done."""
        found = None if self.watch is None or self.watch.repeated is None else watch_on(tokens, self.watch)
        if found is None:
            return False
        self.watch, self._files.tokens, self._draws_again = found, tokens, False
        return True

    def _see(self, batch: Any) -> None:
        """Draw the test for induction again from the tokens that occur in the first batch, before the model is run on
        it: a model knows nothing of others, which would hide what it copies. The row so far is made again."""
        if not self._draws_again or self.closed or self.watch is None:
            return
        self._draws_again, old = False, self.watch
        try:
            if not self._draw_from(self._tokens_in(batch)):
                return
        except Exception as e:  # never a reason to stop training
            log.warning("induction is tested on the whole vocabulary: %s: %s", type(e).__name__, e)
            return
        self._files.mark = self.watch.seen_with
        given = {name: value for name, value in self.rows[-1].items() if name not in old.tried}
        self.rows[-1] = {**given, **self.watch.tried}

    def _tokens_in(self, batch: Any) -> list[int]:
        vocabulary = sizes_of(find.runnable(self.model)).vocabulary
        return find.tokens_in(batch, vocabulary or 0, MOST_TOKENS)

    def _begin(self, watch: Watch) -> None:
        self._files.mark = watch.seen_with
        row = watch.tried or watch.measure()
        self._choose_directory()
        self.rows.append({STEP: float(self.step), **row})
        layers = {name.rsplit("_", 1)[0] for name in row if name.startswith("row_entropy_")}
        what = "induction" if watch.repeated is not None else "entropies"
        if watch.targets:
            what = "attention to your targets"
        log.info("watching %s in %d layers of %s; the curve is in %s", what, len(layers), self._files.model, self.out)
        if what == "induction":
            log.info("the watch tells whether induction heads have formed and whether the loss is flat; not yet when")
        self.report()  # loads what later ones need
        for kind, work in (("look", watch.measure), ("report", self.report)):
            began = self.pace.clock()
            work()
            self.pace.expect(kind, self.pace.clock() - began)

    def _choose_directory(self) -> None:
        """Once; the rows of the training that is resumed come first."""
        if not self._files.is_chosen:
            self.rows[:0] = earlier = self._files.choose(self.step if self._start else 0)
            self._draws_again = self._draws_again and not earlier  # which were measured with the present test

    def _from_batch(self, batch: Any) -> None:
        """Make the watch when the first batch has shown how the model is called."""
        self.watch, why = batch_watch(find.runnable(self.model), batch)
        if self.watch is None:
            log.warning("attention is not measured; the loss is. %s", why)
            return
        if why:
            log.info("no induction test: %s. Entropies are measured, and give no forecast; %s", why, TO_FORECAST)
        self._go_on_with_saved_tokens()
        if self._files.tokens is None and not self._start:
            self._draw_from(self._tokens_in(batch))
        self._begin(self.watch)

    # -- what the training loop does

    def _attach(self, optimizer: Any) -> None:
        hook = ModelHook(self._losses, None if self.watch is not None or find.why_sharded(self.model) else FEW, NO_STEP)
        self._hook = hook
        self._handles.append(self.model.register_forward_hook(hook, with_kwargs=True))
        if self._draws_again:
            called = find.called_in_training(self.model)
            self._handles.append(called.register_forward_pre_hook(FirstBatch(self._see), with_kwargs=True))
        if optimizer is None:
            return
        while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
            optimizer = inner  # of Accelerate
        if not hasattr(optimizer, "register_step_post_hook"):
            raise BadInput("optimizer", optimizer, "a torch.optim.Optimizer, or None to call `stepped()` yourself")
        hook.patience = ACCUMULATED
        if find.is_of_another_model(optimizer, self.model):
            hook.patience = None  # this is said instead
            log.warning(
                "none of the parameters of this optimizer belongs to the model: its steps are counted, and unless it "
                "trains the model, pass the optimizer that does, or call `stepped()` after each step"
            )
        self._step_handle = optimizer.register_step_post_hook(lambda *_: self.stepped())

    def loss(self, loss: Any) -> None:
        """The loss of this step, a number or a tensor, if the model's output has none; before or after the optimiser's
        step. It is read when a row is written, not before."""
        if not self.closed:
            self._losses.add_given(loss)

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
        self.leave_counting()
        began, spent, self._uncounted = self.pace.clock(), self.pace.spent, 0.0
        try:
            self._stepped(self.step + 1 if step is None else step)
        except Exception as e:  # never a reason to stop training
            log.warning("the watch ends at step %s, and training goes on: %s: %s", self.step, type(e).__name__, e)
            self.close(last=False, within_step=True)
        # With all that is beside measurements and reports.
        self.pace.spent = spent + self.pace.clock() - began - self._uncounted

    def leave_counting(self) -> None:
        """Steps are counted, now or by a trainer: there is nothing to warn of."""
        self._hook.patience = None

    def _stepped(self, step: int) -> None:
        if step <= self.step:  # several batches may make one step
            return
        if self.pace.trained == 0.0:
            self.pace.begin(self.step)
        self.step, self._draws_again = step, False
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
        self._say_what_is_missing(step)
        if self.rows and self.rows[-1][STEP] == step:
            self._tell(step)

    def _tell(self, step: int) -> None:
        """Report what the last row shows, if that is due; else look at the loss alone, which is cheap."""
        began = self.pace.clock()
        if self._reports.is_due(step):
            self.report()
            self.pace.took("report", self.pace.clock() - began)
        elif (self._losses.seen or self._has_loss) and self.pace.allows_loss:
            self._reports.follow_loss(self.rows)
            self.pace.took("loss", self.pace.clock() - began)

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

    def _say_what_is_missing(self, step: int) -> None:
        """Once each: that no loss is seen, and that no measurement is made for long."""
        if step == self._start + NO_LOSS and not self._losses.seen and not self._has_loss:
            induction = self.watch is not None and self.watch.repeated is not None
            known = "whether induction heads have formed" if induction else "how attention moves"
            shows = f"the watch shows {known}, but not" if self.watch is not None else "the watch cannot tell"
            log.info("no loss is seen: %s whether the loss is on a plateau; `watch.loss(loss)` gives it", shows)
        if self.watch is not None and not self._said_pause and (pause := self.pace.pause(step)) is not None:
            self._said_pause = True
            log.info(
                "the next measurement is made after about %.0f s of training, near step %s, to keep within %g%% of the "
                "time; for more of them pass every=, as in every=%d",
                pause.seconds,
                f"{pause.step:,.0f}",
                100 * self.pace.share,
                SHORTEST_GAP,
            )

    # -- what it gives

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

    @property
    def out(self) -> Path | None:
        """The run directory; None until there are rows, unless it was given."""
        return self._files.path

    def report(self) -> None:
        """Save the curve, write to trackers, and print a line if something has changed."""
        if not self.closed:
            self._report()

    def _report(self, *, is_last: bool = False) -> None:
        if self.rows:
            self._choose_directory()
        self._reports.make(self.rows, self.step, is_trial=self._draws_again, is_last=is_last)

    def save(self) -> Path | None:
        """Write the curve to the run directory; None if there is nothing to write, or it cannot be written."""
        if not self.rows or self.closed:
            return None
        self._choose_directory()
        return self._files.save(self.rows, self.pace.seconds_per_step(self.step))

    def __del__(self) -> None:
        if getattr(self, "_attached", False) and not self.closed:  # not one that was refused
            close_later(self)

    def close(self, *, last: bool = True, within_step: bool = False) -> None:
        """Detach from model and optimiser, measure a `last` time, save the curve, and say what it came to. At the end
        of the process it is closed without a last measurement, but with a last line. `within_step`: the watch has
        failed, and PyTorch goes through the optimiser's hooks, of which none may be removed then."""
        if self.closed:
            return
        if self._step_handle is not None and not within_step:
            self._step_handle.remove()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        try:
            says = self.step != self._start and not within_step  # else no step was made, or the watch failed
            looks = last and self.watch is not None and self.step not in (self._start, self.pace.last)
            if looks:
                self._look()
            self._files.is_ended = True
            if self.rows and (looks or self._reports.last != self.step):
                self._report(is_last=says)
            elif self.rows:
                self._files.end(int(self.rows[-1][STEP]))
                if says:
                    self._reports.say_last()
        except Exception as e:  # such as a full disk at the end of a training
            log.warning("the last rows are not saved: %s: %s", type(e).__name__, e)
        self.closed = True
        self._reports.trackers.close()
