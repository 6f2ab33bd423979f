"""What a `Watch` reads of a language model: its token indices, its logits, and its losses on text and random sequences.

Losses are computed one sequence after the other, since a second copy of all logits may not fit into memory.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from unstuck.columns import COPY_ADVANTAGE, IN_CONTEXT_SCORE, Row
from unstuck.probes.induction import copy_advantage, in_context_score, token_losses

SHORTEST_TEXT = 9  # tokens of a probe: its 8 losses have an eighth early and an eighth late in the context


def token_indices(inputs: Any) -> Tensor | None:
    """The token indices, (n, T), of a model's input, if that is a tensor of them or a mapping with `input_ids`."""
    found = inputs.get("input_ids") if isinstance(inputs, Mapping) else inputs
    if not isinstance(found, Tensor) or found.dim() != 2 or not found.numel():
        return None
    return None if found.dtype == torch.bool or found.is_floating_point() or found.is_complex() else found


def logits_of(output: Any, tokens: Tensor) -> Tensor | None:
    """The logits, (n, at least T, vocabulary), that a model gives on token indices, (n, T): its output, `logits` in it,
    or the first part of a tuple that has this shape. None if no such tensor knows all of the tokens."""
    (n, T), largest = tokens.shape, int(tokens.max())
    for part in parts_of(output):
        if isinstance(part, Tensor) and part.dim() == 3 and part.is_floating_point():
            sequences, positions, vocabulary = part.shape
            if sequences == n and positions >= T and vocabulary > largest:
                return part
    return None


def parts_of(output: Any) -> Iterator[Any]:
    """Where logits may be in what a model gives."""
    if isinstance(output, Mapping):
        yield output.get("logits")
    elif hasattr(output, "logits"):
        yield output.logits
    elif isinstance(output, (tuple, list)):
        yield from output
    else:
        yield output


def text_row(output: Any, tokens: Tensor) -> Row:
    """What the context is worth on text, (n, T), if the output has logits of each of its tokens."""
    logits = logits_of(output, tokens)
    if logits is None or logits.shape[1] != tokens.shape[1] or tokens.shape[1] < SHORTEST_TEXT:
        return {}

    def score(one: Tensor, text: Tensor) -> Tensor:
        return in_context_score(token_losses(one[:, :-1], text[:, 1:]))

    return {IN_CONTEXT_SCORE: _mean(score, logits, tokens)}


def repeated_row(output: Any, tokens: Tensor) -> Row:
    """What copying is worth on sequences of two passes, if the output has logits of them; those of tokens that the
    model's input has before them are left out."""
    logits = logits_of(output, tokens)
    if logits is None:
        return {}
    period = tokens.shape[1] // 2

    def advantage(one: Tensor, both: Tensor) -> Tensor:
        return copy_advantage(one, both, period)

    return {COPY_ADVANTAGE: _mean(advantage, logits[:, logits.shape[1] - tokens.shape[1] :], tokens)}


def _mean(measure: Callable[[Tensor, Tensor], Tensor], logits: Tensor, tokens: Tensor) -> float:
    """The mean over sequences of a measure of their logits and tokens."""
    known = tokens.to(logits.device).long()
    each = [measure(logits[i : i + 1], known[i : i + 1]) for i in range(len(known))]
    return torch.cat(each).mean().item()
