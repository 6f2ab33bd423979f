"""What `unstuck.watch` measures of a model: attention to the user's targets, induction, or entropies on a batch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.attach import find
from unstuck.attach.capture import beside, called, can_run, seen_kernels, undisturbed, unwrapped
from unstuck.attach.language import logits_of, parts_of
from unstuck.attach.sizes import Sizes, sizes_of
from unstuck.attach.watch import SHORTEST, Watch
from unstuck.errors import BadInput

AHEAD_SHARE = 0.01  # of the spread of logits, by which rounding and the routing of experts may change them
LENGTH = 48  # tokens of a random sequence that tests for induction, if the context allows it
SHORTER = (24, 12, SHORTEST)  # lengths that are tried where the context is not known


def chosen_watch(model: nn.Module, options: Mapping[str, Any]) -> Watch:
    """A watch with what the user names; a language model is tested for induction besides."""
    options = dict(options)
    if options["vocabulary"] is not None and options["length"] is None:
        options["length"] = min(LENGTH, sizes_of(model).context or LENGTH)
    if options["vocabulary"] is not None and options["tokens"] is None:
        options["tokens"] = find.forms(model)[0]
    return Watch(model, **{name: value for name, value in options.items() if value is not None})


def language_watch(model: nn.Module, seen: int | None = None) -> tuple[Watch | None, str]:
    """A watch that tests a language model for induction, or None, and why there is none. A language model has logits of
    every position over the tokens that it takes, from the tokens up to it. `seen` is the length of a batch that the
    model has taken, for a model that does not state its context: on a GPU a position beyond it would end the
    process."""
    if seen is None and not can_run(model):
        return None, "its parameters are made by the first batch"
    sizes = sizes_of(model)
    longest = sizes.context or seen
    on_cpu = all(p.device.type == "cpu" for p in model.parameters())
    if sizes.vocabulary is None or sizes.vocabulary < 2:
        return None, "the model has no embedding of tokens"
    if why := _untestable(longest, on_cpu):
        return None, why
    most = min(LENGTH, longest or LENGTH)
    for length in (most, *(length for length in SHORTER if on_cpu and length < most)):
        tried = list(_watches(model, sizes.vocabulary, length))
        if watches := [one for one in tried if isinstance(one, Watch)]:
            return _with_logits(watches, sizes)
        why = str(tried[-1])
    return None, why


def _untestable(longest: int | None, on_cpu: bool) -> str:
    """Why a model is not tested whose context is `longest`, or not known; empty if it can be."""
    if longest is None:
        return "" if on_cpu else "the model does not state the length of its context"
    return "" if longest >= SHORTEST else f"its context is {longest}, and the test needs {SHORTEST}"


def _with_logits(watches: Sequence[Watch], sizes: Sizes) -> tuple[Watch | None, str]:
    """That of `watches` whose model has logits over its tokens and is causal, or None, and why there is none."""
    for watch in watches:
        if watch.logits and watch.logits in (sizes.vocabulary, sizes.table):
            return (watch, "") if is_causal(watch) else (None, "its logits at a position depend on later tokens")
    if gives_one_answer(watches[0]):
        return None, "the model gives one answer a sequence"
    return None, f"the model has no logits over the {sizes.vocabulary} tokens that it takes at every position"


def is_causal(watch: Watch) -> bool:
    """Do a model's logits over the first half of a sequence stay as they are if its last token is another one? Those of
    a masked language model do not: it predicts no next token."""
    changed = watch.random[:1].clone()
    changed[0, -1] = changed[0, -2]
    first, second = (_logits(watch, tokens)[:, : watch.half] for tokens in (watch.random[:1], changed))
    return not bool((first - second).abs().max() > AHEAD_SHARE * first.std())  # also of logits that are not finite


def gives_one_answer(watch: Watch) -> bool:
    """Is a model's output (sequences, classes), or one number a sequence, rather than something of every position?"""
    tensors = [part for part in parts_of(_output(watch, watch.random)) if isinstance(part, Tensor) and part.dim()]
    return bool(tensors) and all(x.dim() <= 2 and len(x) == len(watch.random) for x in tensors)


def _logits(watch: Watch, tokens: Tensor) -> Tensor:
    found = logits_of(_output(watch, tokens), tokens)
    assert found is not None  # as when the watch was made
    return found.float()


def _output(watch: Watch, tokens: Tensor) -> Any:
    model = unwrapped(watch.model)
    with undisturbed(model), seen_kernels(model):
        return called(model, beside(model, watch.tokens(tokens)))


def watch_on(tokens: Sequence[int], watch: Watch) -> Watch | None:
    """The same test for induction on sequences of these tokens alone; None if they are too few for a pass without
    repeats, or not the model's."""
    if len(tokens) < watch.half:
        return None
    model, length = watch.model, watch.random.shape[1]
    device = next((p.device.type for p in model.parameters()), "cpu")
    try:  # autocast would keep copies of the weights without gradients for the training step that follows
        with torch.autocast(device, enabled=False):
            return Watch(model, vocabulary=tokens, length=length, tokens=watch.tokens)
    except (BadInput, RuntimeError, IndexError):
        return None


def _watches(model: nn.Module, vocabulary: int, length: int) -> Iterator[Watch | str]:
    """For each way in which the model may take tokens: a watch, or why there is none."""
    for form in find.forms(model):
        try:
            one = Watch(model, vocabulary=vocabulary, length=length, tokens=form)
            if not one.tried:  # its parameters are loaded layer by layer
                one.measure()
            yield one
        except (BadInput, RuntimeError) as e:
            yield str(e)


def batch_watch(model: nn.Module, batch: Any) -> tuple[Watch | None, str]:
    """A watch from the first sequences of a batch: one that tests a language model for induction; else one that
    measures entropies on the batch, and why it does not test for induction; else None, and why there is none."""
    found, why = None, "the model takes no tokens"
    if (tokens := find.token_length(batch)) is not None:
        found, why = language_watch(model, tokens)
    if found is not None:
        return found, ""
    try:
        return Watch(model, batch), why
    except (BadInput, RuntimeError) as e:
        return None, str(e)
