"""`unstuck data`: what a text offers to induction heads, before training."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from unstuck.corpus import repeats
from unstuck.corpus.reading import CORPORA, read
from unstuck.corpus.tokens import BYTES, Indices, Tokens, tokenise
from unstuck.errors import BadInput, InvalidCombination
from unstuck.extras import require
from unstuck.files import replace_file
from unstuck.laws.induction import published_steps
from unstuck.scalars import whole as check_whole
from unstuck.view.repeats import explain_repeats

from .common import Json, bar, say, warnings_as_sentences, whole

LARGEST = 65_536  # tokens of a vocabulary or a context, as in task text
LARGEST_BATCH = 2**31
PICTURES = (".png", ".pdf", ".svg")
OPTIONS = {"task.corpus": "FILE", "task.vocabulary": "--vocabulary", "context": "--context"}


def data(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A text file, a folder of text files, or the name of a corpus: sotu.",
            show_default=False,
        ),
    ],
    context: Annotated[
        int, typer.Option("--context", parser=whole, metavar="INT", help="Tokens that the model sees, 2 to 65536.")
    ] = 64,
    batch: Annotated[
        int, typer.Option("--batch", parser=whole, metavar="INT", help="Sequences in a training step.")
    ] = 32,
    vocabulary: Annotated[
        int,
        typer.Option(
            "--vocabulary",
            parser=whole,
            metavar="INT",
            help="Tokens of the byte-level BPE, trained on the text, 256 to 65536; 256: bytes.",
        ),
    ] = 1024,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PICTURE", help="Draw frequency and reliability by distance: .png, .pdf, .svg."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure what a text offers to induction heads, before training.

    An induction head looks for the present token earlier in the context and predicts the token that followed it there.
    It forms if tokens repeat within a context (frequency) and what follows them repeats too (reliability). The text is
    cut into consecutive sequences, and both are measured on all of them. The step of formation is the published law
    10^5.7 / sqrt(batch x context) of Aoyama, Wilcox and Schneider (arXiv 2511.16893), for natural text that repeats
    enough. The missing repetition is the share of sequences that have to repeat themselves, task.burst.

    [bold]Examples[/bold]

      unstuck data sotu

      unstuck data notes.txt --context 256 --batch 16 --plot notes.png

      unstuck data src --vocabulary 256 --json
    """
    check_whole("--context", context, 2, LARGEST, f"a whole number from 2 to {LARGEST}")
    check_whole("--batch", batch, 1, LARGEST_BATCH, f"a whole number from 1 to {LARGEST_BATCH}")
    check_whole("--vocabulary", vocabulary, BYTES, LARGEST, f"a whole number from {BYTES} to {LARGEST}")
    if plot is not None:
        _check_picture(plot)
    with warnings_as_sentences(), _named_options(), bar("reading") as progress:
        tokens = _tokens(file, vocabulary)
        progress(1, 3, "counting")
        answer = {"file": file, "vocabulary": vocabulary, "context": context, "batch": batch}
        answer |= _measured(tokens, vocabulary, context, batch)
        progress(2, 3, f"comparing with {repeats.REFERENCE}")
        answer |= _missing(answer, _level(file, answer))
    if plot is not None:
        _draw(answer, plot)
    if as_json:
        print(json.dumps(answer))
        return
    explain_repeats(answer)
    if plot is not None:
        say(f"written: {plot}")


def _tokens(file: str, vocabulary: int) -> Indices:
    """All tokens of a text."""
    if file in CORPORA:
        require("text", f"FILE {file}", CORPORA[file].package)
    text = read(file)
    if not text.strip():
        raise BadInput("FILE", file, "a file with text; this one is empty")
    if vocabulary > BYTES:
        require("text", f"--vocabulary {vocabulary}", "tokenizers")
    return tokenise(text, vocabulary)[0]


def _measured(tokens: Indices, vocabulary: int, context: int, batch: int) -> dict[str, Any]:
    """All that follows from the text alone."""
    parts = Tokens.split(tokens, vocabulary)
    if len(parts.held_out) <= context + 1:  # as task text refuses it
        most = len(parts.held_out) - 2
        wanted = f"at most {most}: the held-out tenth of the text has {len(parts.held_out)} tokens"
        raise BadInput("--context", context, wanted if most >= 2 else "shorter than the text; take a longer text")
    windows = repeats.cut(tokens, context)
    found = repeats.count_repeats(windows)
    train = repeats.cut(parts.train, context, repeats.MOST_COUNTED)
    gain = repeats.advantage(train, repeats.cut(parts.held_out, context), vocabulary)
    by_distance = zip(
        repeats.distances(context), found.frequencies, found.reliabilities, gain.bigram_reliabilities, strict=True
    )
    steps = published_steps(batch, context)
    seen = steps * batch * context
    return {
        "tokens": len(tokens),
        "repeat_rate": found.repeat_rate,
        "reliability": _number(found.reliability),
        "bigram_reliability": _number(gain.bigram_reliability),
        "predictable": found.predictable,
        "copied_predictable": repeats.count_repeats(repeats.repeated(windows)).predictable,
        "advantage": gain.nats,
        "weight": gain.weight,
        "bigram_loss": gain.bigram_loss,
        "distances": [
            {
                "from": low,
                "to": high,
                "frequency": float(f),
                "reliability": _number(r),
                "bigram_reliability": _number(b),
            }
            for (low, high), f, r, b in by_distance
        ],
        "expected_steps": steps,
        "expected_tokens": seen,
        "expected_passes": seen / len(tokens),
    }


def _level(file: str, answer: dict[str, Any]) -> float | None:
    """The predictable share of the reference corpus with the reference burst, at the same vocabulary and context; None
    if it is not installed or too small for these."""
    if file == repeats.REFERENCE:
        natural, copied = answer["predictable"], answer["copied_predictable"]
    else:
        try:
            windows = repeats.cut(_tokens(repeats.REFERENCE, answer["vocabulary"]), answer["context"])
        except BadInput as e:
            why = (
                str(e) if isinstance(e, InvalidCombination) else f"{repeats.REFERENCE} is too small for these options."
            )
            say(f"The repetition that is missing is not known: {why}")
            return None
        natural = repeats.count_repeats(windows).predictable
        copied = repeats.count_repeats(repeats.repeated(windows)).predictable
    return repeats.with_burst(natural, copied, repeats.REFERENCE_BURST)


def _missing(answer: dict[str, Any], level: float | None) -> dict[str, Any]:
    missing = None
    if level is not None:
        missing = repeats.missing_burst(answer["predictable"], answer["copied_predictable"], level)
    return {"missing_burst": missing, "reference_predictable": level}


def _check_picture(plot: Path) -> None:
    require("papers", "--plot", "matplotlib")
    if plot.suffix.lower() not in PICTURES:
        raise BadInput("--plot", str(plot), f"a file that ends in {', '.join(PICTURES)}")
    if plot.is_dir() or not plot.parent.is_dir():
        raise BadInput("--plot", str(plot), "a file in a folder that exists")


def _draw(answer: dict[str, Any], plot: Path) -> None:
    from unstuck.papers.style import look  # imports matplotlib
    from unstuck.view.repeats_picture import draw_repeats

    with look():
        replace_file(plot, partial(draw_repeats(answer).savefig, format=plot.suffix[1:].lower()))


def _number(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return None if math.isnan(value) else float(value)


@contextmanager
def _named_options() -> Iterator[None]:
    """Name a refused value by this command's argument or option."""
    try:
        yield
    except BadInput as e:
        if e.field not in OPTIONS:
            raise
        raise BadInput(OPTIONS[e.field], e.value, e.allowed) from e
