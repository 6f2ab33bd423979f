"""What models share that predict at the last `scored` positions of a sequence and compute only those where they can."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.errors import Impossible
from unstuck.tasks.task import Task


def scored_positions(task: Task, model: str) -> tuple[int, int]:
    """Length of a sequence and how many of its last positions are scored, for models that predict at several."""
    T, scored = getattr(task, "T", None), getattr(task, "scored", None)
    if T is None or scored is None:
        raise Impossible(f"model.name = {model} needs sequences with scored positions, as task.name = markov has")
    return T, scored


def hidden_positions(T: int, context: int, layers: int) -> Tensor:
    """(T, T), True where a position must not look: ahead, and, with a context, further back than that. Through two
    layers it would see further, by what others have seen."""
    if context and layers > 1:
        raise Impossible(f"model.context is {context}, but must be 0 with model.layers = {layers}, which see further")
    ahead = torch.ones(T, T, dtype=torch.bool).triu(1)
    return ahead | torch.ones(T, T, dtype=torch.bool).tril(-context) if context else ahead


class ScoredModule(nn.Module):
    """A module whose `_run` gives the output and each layer's attention of the last rows, (n, heads, rows, T)."""

    T: int

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        return self._run(tokens)[0]

    def observe(self, tokens: Tensor, *, whole: bool = False) -> tuple[Tensor, list[Tensor]]:
        """The output, and every layer's attention, (n, heads, T, T) if `whole`, else from the last position. Rows that
        are not scored are left at zero where a layer does not compute them."""
        outputs, maps = self._run(tokens)
        if not whole:
            return outputs, [weights[:, :, -1] for weights in maps]
        return outputs, [F.pad(weights, (0, 0, self.T - weights.shape[2], 0)) for weights in maps]

    def attention(self, tokens: Tensor) -> list[Tensor]:
        """Attention weights of every layer, (n, heads, T, T) each."""
        return self.observe(tokens, whole=True)[1]
