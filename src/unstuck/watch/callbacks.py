"""`Watch` in other people's trainers."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from unstuck.errors import Impossible

from .watch import Watch


def due(watch: Watch, step: int) -> bool:
    """Is it time to look, and not done yet? Several batches may make one optimiser step."""
    return step % watch.every == 0 and not (watch.rows and watch.rows[-1]["step"] == step)


def trainer_callback(watch: Watch) -> Any:
    """For the Hugging Face Trainer: `Trainer(..., callbacks=[trainer_callback(watch)])`."""
    from transformers import TrainerCallback

    class WatchCallback(TrainerCallback):
        """Looks before the first and after every so many optimiser steps, and takes the loss the Trainer logged last,
        which is the mean of its `logging_steps` before that."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._look(state)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._look(state)

        def _look(self, state: Any) -> None:
            if due(watch, state.global_step):
                logged = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), None)
                watch(state.global_step, **({} if logged is None else {"train_loss": logged}))

    return WatchCallback()


def _lightning() -> Any:
    """Lightning's callbacks, from either of the packages it comes in."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        if find_spec(package.partition(".")[0]) is not None:
            return import_module(f"{package}.callbacks")
    raise Impossible("Lightning is not installed: pip install lightning")


def lightning_callback(watch: Watch) -> Any:
    """For Lightning: `Trainer(..., callbacks=[lightning_callback(watch)])`."""
    base: Any = _lightning().Callback

    class WatchCallback(base):  # type: ignore[misc]
        """Looks before the first and after every so many optimiser steps, and takes what was logged by name."""

        def on_train_start(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
            self._look(trainer)

        def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
            self._look(trainer)

        def _look(self, trainer: Any) -> None:
            if due(watch, trainer.global_step):
                watch(trainer.global_step, **{k: float(v) for k, v in trainer.callback_metrics.items()})

    return WatchCallback()
