"""A corpus as token indices, with a held-out part: byte-level BPE, trained on the text itself, or plain bytes."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstuck.errors import BadInput
from unstuck.extras import require
from unstuck.files import write_bytes, write_text

from .reading import identity, read

BYTES = 256  # the smallest vocabulary: every byte is a token
PIECE = 100_000  # characters that are tokenised at once
PIECES, HELD_OUT = 100, 10  # the text is cut into so many pieces, and every tenth is held out

Indices = NDArray[np.uint16]


@dataclass(frozen=True)
class Tokens:
    """Token indices of a text: those to train on and those held out."""

    vocabulary: int
    train: Indices
    held_out: Indices

    @classmethod
    def split(cls, tokens: Indices, vocabulary: int) -> "Tokens":
        """Hold out every tenth of a hundred pieces, so that both parts come from the whole text."""
        pieces = np.array_split(tokens, PIECES)
        held_out = pieces[HELD_OUT - 1 :: HELD_OUT]
        rest = [piece for i, piece in enumerate(pieces) if i % HELD_OUT != HELD_OUT - 1]
        return cls(vocabulary, np.concatenate(rest), np.concatenate(held_out))

    def check_context(self, field: str, context: int, shortest: int) -> None:
        """Refuse a context that the held-out part is too short for; `shortest` is the smallest there may be."""
        there = len(self.held_out)
        if context > (most := there - 2):
            limit = f"at most {most}" if most >= shortest else "for a longer text"
            raise BadInput(field, context, f"{limit}: the held-out tenth of this one has {there} tokens")

    @property
    def common(self) -> NDArray[np.int64]:
        """The tokens that have at least a tenth of the frequency that all would have if they were equally frequent. A
        model knows little of the others, so random sequences for probes are drawn from these."""
        counts = np.bincount(self.train, minlength=self.vocabulary)
        return np.flatnonzero(10 * counts * self.vocabulary >= len(self.train))


_encoded: dict[tuple[str, int], Tokens] = {}  # of this process: every run of a sweep asks for the same


def encode(corpus: str, vocabulary: int, cache: Path | None = None) -> Tokens:
    """The tokens of a corpus. With `cache`, a directory, they are read from there, or written for the next time."""
    key = (identity(corpus), vocabulary)
    if key not in _encoded:
        file = None if cache is None else cache / f"{key[0]}-{vocabulary}.npy"
        tokens = _stored(file, vocabulary)
        if tokens is None:
            tokens, tokenizer = tokenise(read(corpus), vocabulary)
            if file is not None:
                _write(file, tokens, tokenizer)
        _encoded.clear()  # of a large text one is enough
        _encoded[key] = Tokens.split(tokens, vocabulary)
    return _encoded[key]


def tokenise(text: str, vocabulary: int) -> tuple[Indices, str]:
    """Indices of all tokens, and the tokeniser as JSON (empty for bytes)."""
    if vocabulary == BYTES:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint16), ""
    tokenizer = trained(text, vocabulary)
    encoded = tokenizer.encode_batch_fast(_pieces(text))
    return np.concatenate([np.array(piece.ids, dtype=np.uint16) for piece in encoded]), tokenizer.to_str()


def trained(text: str, vocabulary: int) -> Any:
    """A byte-level BPE tokeniser with that many tokens, trained on a text."""
    require("text", f"task.vocabulary={vocabulary}", "tokenizers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # optional

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_pieces(text), trainer)
    if (found := tokenizer.get_vocab_size()) < vocabulary:
        raise BadInput("task.vocabulary", vocabulary, f"at most {found}: the text has no more pairs to join")
    return tokenizer


def _pieces(text: str) -> list[str]:
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def _stored(file: Path | None, vocabulary: int) -> Indices | None:
    """What a cache holds; None if it holds nothing that can be used."""
    if file is None or not file.is_file():
        return None
    try:
        tokens = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    usable = (
        isinstance(tokens, np.ndarray)
        and tokens.dtype == np.uint16
        and tokens.ndim == 1
        and len(tokens)
        and tokens.max() < vocabulary
    )
    return tokens if usable else None


def _write(file: Path, tokens: Indices, tokenizer: str) -> None:
    """Write the tokens and, beside them, the tokeniser; two runs may do the same at one time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if tokenizer:
        write_text(file.with_suffix(".tokenizer.json"), tokenizer)
    content = io.BytesIO()
    np.save(content, tokens)
    write_bytes(file, content.getvalue())
