"""`Watch` in the trainers of Hugging Face and Lightning."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from unstuck.attach.capture import unwrapped
from unstuck.attach.watch import Watch
from unstuck.columns import TRAIN_LOSS
from unstuck.errors import InvalidCombination


def check_trained(watch: Watch, trained: Any) -> None:
    """Is the watched model, or a part of it, the one that is trained? By modules: parameters may be copied."""
    of_trainer = {id(module) for module in trained.modules()} if hasattr(trained, "modules") else None
    if of_trainer is not None and not any(id(module) in of_trainer for module in unwrapped(watch.model).modules()):
        raise InvalidCombination(
            f"this {type(watch.model).__name__} is not the model that is trained: make the Watch with the trainer's "
            "model; a trainer with `model_init` makes a new one when training begins"
        )


def trainer_callback(watch: Watch) -> Any:
    """For the Hugging Face Trainer: `Trainer(..., callbacks=[trainer_callback(watch)])`."""
    if find_spec("transformers") is None:
        raise InvalidCombination("the Hugging Face Trainer is not installed: pip install transformers")
    from transformers import TrainerCallback

    class WatchCallback(TrainerCallback):
        """Measures before the first and after every so many optimiser steps, and takes the loss that the Trainer logged
        last, which is the mean of its `logging_steps` before that."""

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            check_trained(watch, model)
            self._measure(state)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._measure(state)

        def _measure(self, state: Any) -> None:
            if watch.due(state.global_step):
                logged = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), None)
                watch(state.global_step, **({} if logged is None else {TRAIN_LOSS: logged}))

    return WatchCallback()


def _lightning() -> Any:
    """Lightning's callbacks, from either of the packages it comes in."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        if find_spec(package.partition(".")[0]) is not None:
            return import_module(f"{package}.callbacks")
    raise InvalidCombination("Lightning is not installed: pip install lightning")


def lightning_callback(watch: Watch) -> Any:
    """For Lightning: `Trainer(..., callbacks=[lightning_callback(watch)])`."""
    base: Any = _lightning().Callback

    class WatchCallback(base):  # type: ignore[misc]
        """Measures before the first and after every so many optimiser steps, and takes what was logged by name."""

        def on_train_start(self, trainer: Any, module: Any = None, **kwargs: Any) -> None:
            check_trained(watch, module)
            self._measure(trainer)

        def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
            self._measure(trainer)

        def _measure(self, trainer: Any) -> None:
            if watch.due(trainer.global_step):  # reading a metric waits for the device
                watch(trainer.global_step, **{k: float(v) for k, v in trainer.callback_metrics.items()})

    return WatchCallback()
