"""Induction heads of language models: scores of heads on a sequence that repeats, and what the model gains by them.

On a sequence of random tokens that is followed by itself, a *previous-token head* attends to the token before, a
*duplicate-token head* to the same token in the first pass, an *induction head* to the token after that one, which is
the one to predict (Olsson et al. 2022). Copying lowers the loss of the second pass. So does a preference for tokens
that were seen, whatever their order; a second pass in reverse shows how much.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .attention import induction_score


def previous_token(weights: Tensor) -> Tensor:
    """Attention from each token but the first to the one before it, (heads,), from (n, heads, T, T). Uniform causal
    attention has the mean of 1/t over t = 2 .. T: 0.06 for 64 tokens, 0.10 for 32.

    Examples:
        >>> previous_token(torch.eye(4).roll(-1, 1)[None, None].clone()).tolist()
        [1.0]
    """
    return weights.diagonal(-1, -2, -1).float().mean((0, 2))


def duplicate_token(weights: Tensor, period: int) -> Tensor:
    """Attention from each token of the second pass to the same token in the first, (heads,), for sequences that end in
    two passes of `period` tokens."""
    rows = torch.arange(weights.shape[-1] - period, weights.shape[-1], device=weights.device)
    return weights[:, :, rows, rows - period].float().mean((0, 2))


def head_scores(weights: Tensor, period: int) -> dict[str, Tensor]:
    """The scores of a layer's heads by the names of the field, on sequences that end in two passes."""
    return {"duplicate_token": duplicate_token(weights, period), "induction": induction_score(weights, period)}


def copy_advantage(logits: Tensor, tokens: Tensor, period: int) -> Tensor:
    """The loss of the first pass minus that of the second, in nats a token, for each of n sequences of two passes of
    random tokens. The first token of each pass does not count: nothing before it tells that a pass begins.

    The loss of the first pass counts as log V at most, for V tokens in the vocabulary. A guess has this loss; a higher
    one, as of a model that was not trained on first halves, is an error of the model and no gain by copying.

    Examples:
        >>> tokens = torch.tensor([[2, 0, 1, 2, 0, 1]])
        >>> knows = torch.zeros(1, 6, 3)
        >>> knows[0, [3, 4], [0, 1]] = 100.0  # the second pass, for certain
        >>> round(copy_advantage(knows, tokens, 3).item(), 4)  # log 3
        1.0986
    """
    losses = token_losses(logits[:, :-1], tokens[:, 1:])  # of all tokens but the first
    end = losses.shape[1]
    first, second = losses[:, end - 2 * period + 1 : end - period], losses[:, end - period + 1 :]
    return first.mean(1).clamp(max=math.log(logits.shape[-1])) - second.mean(1)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of every token in nats, (n, T), from logits, (n, T, vocabulary)."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none").view(targets.shape)


def in_context_score(losses: Tensor) -> Tensor:
    """By how much tokens are easier late in the context than early, in nats, for each of n sequences with losses (n,
    T): the mean of the second eighth of the positions minus that of the last eighth. Olsson et al. 2022 compare single
    positions, the 50th and the 500th of 512. The first eighth is left out because its tokens lack even their nearest
    neighbours.

    Examples:
        >>> in_context_score(torch.arange(16.0, 0.0, -1.0)[None]).tolist()
        [12.0]
    """
    T = losses.shape[1]
    eighth = max(1, T // 8)
    return losses[:, eighth : 2 * eighth].mean(1) - losses[:, T - eighth :].mean(1)
