"""`Watch` in other people's trainers."""

from typing import Any

from .watch import Watch


def trainer_callback(watch: Watch) -> Any:
    """For the Hugging Face Trainer: `Trainer(..., callbacks=[trainer_callback(watch)])`."""
    from transformers import TrainerCallback

    class WatchCallback(TrainerCallback):
        """Looks after every so many optimiser steps, and takes the loss the Trainer logged last."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            logged = [entry["loss"] for entry in state.log_history if "loss" in entry]
            watch(state.global_step, **({"train_loss": logged[-1]} if logged else {}))

    return WatchCallback()


def lightning_callback(watch: Watch) -> Any:
    """For Lightning: `Trainer(..., callbacks=[lightning_callback(watch)])`."""
    from lightning.pytorch.callbacks import Callback

    class WatchCallback(Callback):
        """Looks after every so many batches, and takes what was logged by name."""

        def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
            logged = {k: float(v) for k, v in trainer.callback_metrics.items()}
            watch(trainer.global_step, **logged)

    return WatchCallback()
