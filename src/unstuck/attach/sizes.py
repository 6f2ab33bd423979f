"""The vocabulary and the context of a language model: from its configuration and its tables of tokens and positions.

A forward pass on four tokens shows which table takes tokens and which takes positions, whatever their names are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from unstuck.attach import find
from unstuck.attach.capture import beside, called, can_run, seen_kernels, undisturbed
from unstuck.attach.configuration import configured

#: Under these names configurations and models keep the length of the longest sequence.
CONTEXTS = (
    "block_size",
    "n_positions",
    "max_position_embeddings",
    "n_ctx",
    "context_length",
    "context_len",
    "max_seq_len",
    "max_seq_length",
    "seq_len",
    "seq_length",
    "sequence_length",
    "max_len",
    "context",
)
VOCABULARIES = ("vocab_size", "n_vocab", "vocabulary", "vocabulary_size", "num_tokens", "n_tokens")
POSITIONS = ("pos", "wpe", "place")  # parts of the names of tables of positions; `pe` is one as a whole name
OTHER_TABLES = ("segment", "token_type", "type_emb")
TOKENS = (1, 0, 1, 0)  # indices that every vocabulary has, and that are neither positions nor segments


@dataclass(frozen=True)
class Sizes:
    """What a model can take; None where it is not known."""

    vocabulary: int | None = None  # how many tokens it knows
    context: int | None = None  # the longest sequence
    table: int | None = field(default=None, compare=False)  # rows of the table of tokens; some are no token's


def sizes_of(model: nn.Module) -> Sizes:
    """The vocabulary is that of the configuration, unless the table of tokens is smaller: beyond it there is no token.
    The context is the least of what the configuration says and of the tables of positions."""
    seen = _seen_tables(model)
    known = next(configured(model, VOCABULARIES), None)
    tokens = min(seen.tokens, default=None) or _likely_vocabulary(model)
    vocabulary = known if tokens is None or (known is not None and known <= tokens) else tokens
    by_name = [] if seen.tokens else _named_tables(model)
    contexts = [*configured(model, CONTEXTS), *seen.positions, *by_name, *_named_parameters(model)]
    return Sizes(vocabulary, min(contexts, default=None), tokens)


# -- tables, by what they take


class _Tables(TorchFunctionMode):
    """Notes the lengths of the tables that are given tokens, and of those that are given positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[int] = []
        self.positions: list[int] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is F.embedding and len(args) > 1 and args[0].numel():
            self._note(args[0].reshape(-1, args[0].shape[-1] if args[0].dim() else 1)[0].tolist(), len(args[1]))
        return func(*args, **(kwargs or {}))

    def _note(self, indices: list[int], length: int) -> None:
        if indices in (list(TOKENS), list(TOKENS[:-1]), list(TOKENS[1:])):  # some models predict the last from the rest
            self.tokens.append(length)
        elif len(indices) > 2 and indices == list(range(indices[0], indices[0] + len(indices))):
            self.positions.append(length - indices[0])  # some tables begin with rows for padding


def _seen_tables(model: nn.Module) -> _Tables:
    """What the tables of a model take in a forward pass, as far as that gets."""
    seen = _Tables()
    tables = any(isinstance(module, nn.Embedding) for module in model.modules())
    for form in find.forms(model) if tables and can_run(model) else ():
        inputs = beside(model, form(torch.tensor([TOKENS])))
        try:
            with undisturbed(model), seen_kernels(model), seen:
                called(model, inputs)
        except Exception:  # a model may raise anything; what was seen before counts
            continue
    return seen


# -- tables, by what they are, for a model that cannot be run


def _is_of_positions(name: str) -> bool:
    return name.rpartition(".")[2] == "pe" or any(part in name for part in POSITIONS)


def _embeddings(model: nn.Module) -> list[tuple[str, nn.Embedding]]:
    return [(name.lower(), module) for name, module in model.named_modules() if isinstance(module, nn.Embedding)]


def _likely_vocabulary(model: nn.Module) -> int | None:
    """The length of the table of tokens: one that is tied to an output or as long as one is wide, else the longest."""
    tables = [m for name, m in _embeddings(model) if not (_is_of_positions(name) or _is_other(name))]
    outputs = [module for module in model.modules() if isinstance(module, nn.Linear)]
    tied = [table for table in tables if any(table.weight is output.weight for output in outputs)]
    fitting = [table for table in tables if any(table.num_embeddings == output.out_features for output in outputs)]
    return max((table.num_embeddings for table in tied or fitting or tables), default=None)


def _is_other(name: str) -> bool:
    return any(part in name for part in OTHER_TABLES)


def _named_tables(model: nn.Module) -> list[int]:
    """The lengths of the tables that are named after positions."""
    return [module.num_embeddings for name, module in _embeddings(model) if _is_of_positions(name)]


def _named_parameters(model: nn.Module) -> list[int]:
    """The same of parameters, (..., positions, width): those of no table, which a forward pass does not show."""
    parameters = [(name.lower().rpartition(".")[2], p) for name, p in model.named_parameters()]
    return [max(p.shape[:-1]) for name, p in parameters if p.dim() >= 2 and _is_of_positions(name)]
