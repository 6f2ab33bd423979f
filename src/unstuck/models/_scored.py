"""Base of models that predict at the last `scored` positions of a sequence, and compute only those where possible.

A model of restricted context (paper 2) is the same model on windows: each scored position is predicted from the last
`context` tokens, as a sequence with positions 0 .. context - 1, and only the last position of the window is read.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.errors import InvalidCombination
from unstuck.tasks.task import Task


def scored_positions(task: Task, model: str, context: int) -> tuple[int, int]:
    """Length of a sequence, and the number of its last positions that are scored."""
    T, scored = getattr(task, "T", None), getattr(task, "scored", None)
    if T is None or scored is None:
        raise InvalidCombination(
            f"model.name = {model} needs sequences with scored positions, as task.name = markov has"
        )
    most = T - scored + 1
    if context > most:
        raise InvalidCombination(
            f"model.context is {context}, but the first scored position has only {most} tokens to see"
        )
    return T, scored


def windows(tokens: Tensor, context: int, scored: int) -> Tensor:
    """The `context` tokens that end at each scored position, (n scored, context), or (n scored, context, d)."""
    parts = tokens.unfold(1, context, 1)[:, -scored:]  # the window is the last dimension, for vectors too
    return parts.flatten(0, 1) if tokens.ndim == 2 else parts.mT.flatten(0, 1)


class ScoredModule(nn.Module):
    """A module whose `_run` takes sequences of `T` tokens to outputs at the last `scored` positions, (n, scored, ...),
    and each layer's attention from its last rows, (n, heads, rows, T). With a context it runs on windows."""

    def __init__(self, T: int, scored: int, context: int) -> None:
        super().__init__()
        self.length, self.predicted, self.context = T, scored, context  # of a whole sequence
        self.T, self.scored = (context, 1) if context else (T, scored)  # of what the model runs on

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        raise NotImplementedError

    def _run_all(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        if not self.context:
            return self._run(tokens)
        outputs, maps = self._run(windows(tokens, self.context, self.predicted))
        return outputs.view(len(tokens), self.predicted, -1), maps

    def forward(self, tokens: Tensor) -> Tensor:
        return self._run_all(tokens)[0]

    def observe(self, tokens: Tensor, *, whole: bool = False) -> tuple[Tensor, list[Tensor]]:
        """The output, and every layer's attention: (n, heads, T, T) if `whole`, else from the last position. Rows that
        a layer does not compute are zero. With a context, a row is the attention from the last position of its window,
        at the positions of the window's tokens."""
        outputs, maps = self._run_all(tokens)
        if self.context:
            maps = [self._placed(weights[:, :, -1]) for weights in maps]
        if not whole:
            return outputs, [weights[:, :, -1] for weights in maps]
        return outputs, [F.pad(weights, (0, 0, self.length - weights.shape[2], 0)) for weights in maps]

    def _placed(self, weights: Tensor) -> Tensor:  # (n scored, heads, context) -> (n, heads, scored, T)
        by_row = weights.unflatten(0, (-1, self.predicted)).transpose(1, 2)
        ends = torch.arange(self.length - self.predicted, self.length, device=weights.device)
        places = ends[:, None] + torch.arange(1 - self.context, 1, device=weights.device)
        out = weights.new_zeros(*by_row.shape[:3], self.length)
        return out.scatter(3, places.expand_as(by_row), by_row)

    def attention(self, tokens: Tensor) -> list[Tensor]:
        """Attention weights of every layer, (n, heads, T, T) each."""
        return self.observe(tokens, whole=True)[1]
