"""What a training shows to hooks: its loss, without waiting for the device, if the model's output has one, or as it is
given by the user; and its first batch."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unstuck.attach import find
from unstuck.attach.messages import log
from unstuck.scalars import number


class Losses:
    """The mean loss over the steps since it was last taken. A step may have several batches; their losses count alike,
    unless they are shares of a common sum. A loss that is given counts more than
    one that is found."""

    def __init__(self) -> None:
        self.seen = False
        self._given: list[Any] = []
        self._found: list[Tensor] = []
        self._shares = False
        self._sum: Any = None
        self._steps = 0

    def add_given(self, loss: Any) -> None:
        self._given.append(loss.detach() if isinstance(loss, Tensor) else loss)
        self.seen = True

    def add_found(self, loss: Tensor, *, share: bool = False) -> None:
        self._found.append(loss)
        self._shares, self.seen = share, True

    def step(self) -> None:
        """A step ends: its batches become one number, which stays on its device."""
        batches = self._given or self._found
        if batches:
            whole = sum(batches) / (1 if self._shares and not self._given else len(batches))
            self._sum = whole if self._sum is None else self._sum + whole
            self._steps += 1
        self._given, self._found = [], []

    def take(self) -> float | None:
        """The mean loss, read from the device; None where there is none."""
        total, steps = self._sum, self._steps
        self._sum, self._steps = None, 0
        return None if total is None else number(total) / steps


class FirstBatch:
    """A hook before the forward pass that shows the model's first batch in training to a watch, once. It is silent in
    the same places as `ModelHook`, and where a pass is recorded rather than run. It does not keep the watch alive."""

    def __init__(self, show: Callable[[Any], None] | None = None) -> None:
        self.show = None if show is None else weakref.WeakMethod(show)

    def __call__(self, module: Any, args: Any, kwargs: Any) -> None:
        if self.show is None or torch.compiler.is_compiling() or not (module.training and torch.is_grad_enabled()):
            return
        if torch._C._get_tracing_state() is not None or (
            torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        ):
            return
        show, self.show = self.show(), None
        if show is not None:
            show(args if args else kwargs)

    def __deepcopy__(self, memo: Any) -> "FirstBatch":
        return FirstBatch()

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstBatch, ()


class ModelHook:
    """A forward hook that finds the loss in the model's output, and keeps the first sequences of the first batch. It
    does nothing in evaluation, without gradients and in compiled code. After so many passes as its `patience` it warns
    that no step is counted, unless the watch has set that to None by then. A copy of the model, or a model that is
    loaded from a file, gets a hook that does nothing."""

    def __init__(self, losses: Losses | None = None, sequences: int | None = None, patience: int | None = None) -> None:
        self.losses, self.sequences, self.patience = losses, sequences, patience
        self.batch: Any = None
        self._passes = 0

    def __call__(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if self.losses is None or torch.compiler.is_compiling() or not (module.training and torch.is_grad_enabled()):
            return
        loss = find.loss_in(output)
        if loss is not None:
            self.losses.add_found(loss, share=kwargs.get("num_items_in_batch") is not None)
        if self.sequences is not None:
            self.batch, self.sequences = find.sequences(args, kwargs, self.sequences), None
        self._passes += 1
        if self._passes == self.patience:
            log.warning(
                "nothing is recorded: after %d forward passes in training no step of the optimiser has been counted; "
                "pass the optimiser that trains this model, `unstuck.watch(model, optimizer)`, or call `stepped()` of "
                "the watch after each step",
                self._passes,
            )

    def __deepcopy__(self, memo: Any) -> "ModelHook":
        return ModelHook()

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelHook, ()
