"""A `Watch` of your own in the trainers of Hugging Face and Lightning."""

from importlib import import_module
from typing import Any

from unstuck.attach.capture import unwrapped
from unstuck.attach.watch import Watch
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
    """For the Hugging Face Trainer: `Trainer(..., callbacks=[trainer_callback(watch)])`. `unstuck.TrainerCallback()`
    needs no Watch."""
    return import_module("unstuck.attach.hugging_face").TrainerCallback(watch)


def lightning_callback(watch: Watch) -> Any:
    """For Lightning: `Trainer(..., callbacks=[lightning_callback(watch)])`. `unstuck.LightningCallback()` needs no
    Watch."""
    return import_module("unstuck.attach.lightning_callback").LightningCallback(watch)
