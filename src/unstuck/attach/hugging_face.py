"""`unstuck.TrainerCallback`: a watch in the Trainer of Hugging Face."""

from pathlib import Path
from typing import Any

from unstuck.attach.auto import AutoWatch
from unstuck.attach.callbacks import check_trained
from unstuck.attach.messages import log
from unstuck.attach.watch import Watch
from unstuck.columns import TRAIN_LOSS
from unstuck.errors import BadInput
from unstuck.extras import require

require("", "unstuck.TrainerCallback", "transformers", install="pip install transformers")
import transformers  # noqa: E402


class TrainerCallback(transformers.TrainerCallback):
    """Watches what a Trainer trains: `Trainer(..., callbacks=[unstuck.TrainerCallback()])`.

    Options are those of `AutoWatch`. The curve is in the folder `unstuck` of the Trainer's output. The loss is that of
    the steps since the last row, from the model's output; where that has none, as with a loss of your own, it is what
    the Trainer logs, at the step of the log. `watch` is the `AutoWatch` once training has begun. A `Watch` in its place
    measures at its own steps, and saves nothing.
    """

    def __init__(self, watch: Watch | None = None, **options: Any) -> None:
        self.watch: Any = watch
        self._explicit, self._options = watch, options

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self._explicit is not None:
            check_trained(self._explicit, model)
            self._explicit(state.global_step)
            return
        options = {"out": Path(args.output_dir) / "unstuck", "step": state.global_step, **self._options}
        try:
            self.watch = AutoWatch(model, None, **options)
            self.watch.leave_counting()
        except BadInput:
            raise  # an option that cannot be used, before training
        except Exception as e:
            log.warning("the training is not watched: %s: %s", type(e).__name__, e)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._explicit is not None:
            self._explicit(state.global_step)
        elif self.watch is not None:
            self.watch.stepped(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """The loss of a log is the mean over the steps since the last log, up to this one."""
        known = {name: value for name, value in (logs or {}).items() if name in ("loss", "eval_loss")}
        named = {TRAIN_LOSS if name == "loss" else name: value for name, value in known.items()}
        if self._explicit is not None:
            rows = self._explicit.rows
            if rows and rows[-1]["step"] == state.global_step:
                rows[-1].update({name: float(value) for name, value in named.items()})
        elif self.watch is not None:
            self.watch.logged(**named)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._explicit is None and self.watch is not None:
            self.watch.close()
