"""`unstuck.LightningCallback`: a watch in the Trainer of Lightning."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unstuck.attach.auto import AutoWatch
from unstuck.attach.callbacks import check_trained
from unstuck.attach.messages import log
from unstuck.attach.watch import Watch
from unstuck.errors import BadInput, InvalidCombination


def _callback() -> Any:
    """Lightning's class, from either of the packages it comes in."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        if find_spec(package.partition(".")[0]) is not None:
            return import_module(f"{package}.callbacks").Callback
    raise InvalidCombination("Lightning is not installed: pip install lightning")


class LightningCallback(_callback()):  # type: ignore[misc]
    """Watches what Lightning trains: `Trainer(..., callbacks=[unstuck.LightningCallback()])`.

    Options are those of `AutoWatch`. The curve is in the folder `unstuck` of the logs, and metrics go to the trainer's
    loggers for TensorBoard and W&B. The loss is the one that `training_step` returns. `watch` is the `AutoWatch` once
    training has begun. A `Watch` in its place measures at its own steps with what is logged, and saves nothing.
    """

    def __init__(self, watch: Watch | None = None, **options: Any) -> None:
        self.watch: Any = watch
        self._explicit, self._options = watch, options

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._explicit is not None:
            check_trained(self._explicit, pl_module)
            self._measure(trainer)
            return
        try:
            out = Path(trainer.log_dir or trainer.default_root_dir) / "unstuck"
            known = {"out": out, "step": trainer.global_step, "trackers": _trackers(trainer)}
            self.watch = AutoWatch(pl_module, None, **{**known, **self._options})
            self.watch.leave_counting()
        except BadInput:
            raise  # an option that cannot be used, before training
        except Exception as e:
            log.warning("the training is not watched: %s: %s", type(e).__name__, e)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._explicit is not None:
            self._measure(trainer)
        elif self.watch is not None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if loss is not None:  # Lightning has divided it by the number of batches of a step
                self.watch.loss(loss * trainer.accumulate_grad_batches)
            self.watch.stepped(trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._explicit is None and self.watch is not None:
            self.watch.close()

    def _measure(self, trainer: Any) -> None:
        if self._explicit is not None and self._explicit.due(trainer.global_step):  # reading a metric waits
            self._explicit(trainer.global_step, **{k: float(v) for k, v in trainer.callback_metrics.items()})


def _trackers(trainer: Any) -> list[Any]:
    """What the trainer's loggers write with."""
    found = [getattr(logger, "experiment", None) for logger in trainer.loggers]
    return [x for x in found if hasattr(x, "add_custom_scalars") or hasattr(x, "define_metric")]
