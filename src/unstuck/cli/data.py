"""`unstuck data`: what a text offers to induction heads, before training."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from unstuck.corpus import repeats
from unstuck.corpus.offer import offer
from unstuck.corpus.reading import CORPORA, read
from unstuck.corpus.tokens import BYTES, Indices, tokenise
from unstuck.errors import BadInput, InvalidCombination
from unstuck.extras import require
from unstuck.files import replace_file
from unstuck.laws.induction import MAX_BATCH, OurRuns, expected_formation, published_steps
from unstuck.scalars import whole as check_whole
from unstuck.view.repeats import explain_repeats

from .common import Json, bar, say, warnings_as_sentences, whole

LARGEST = 65_536  # tokens of a vocabulary or a context, as in task text
PICTURES = (".png", ".pdf", ".svg")
OPTIONS = {"task.corpus": "FILE", "task.vocabulary": "--vocabulary", "context": "--context"}


def data(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help=f"A text file, a folder of text files, or the name of a corpus: {', '.join(CORPORA)}.",
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
    cut into consecutive sequences, and both are measured on all of them. What a head gains over bigrams, in nats a
    token, is expressed as an equivalent burst: the share of sequences that would have to repeat themselves to offer as
    much. The step of formation follows from it by the law of our runs; without that law it is the published one,
    10^5.7 / sqrt(batch x context) (arXiv 2511.16893), which is the same for every text. The missing repetition is the
    share of sequences that have to repeat themselves, task.burst.

    [bold]Examples[/bold]

      unstuck data sotu

      unstuck data notes.txt --context 256 --batch 16 --plot notes.png

      unstuck data src --vocabulary 256 --json
    """
    check_whole("--context", context, 2, LARGEST, f"a whole number from 2 to {LARGEST}")
    check_whole("--batch", batch, 1, MAX_BATCH, f"a whole number from 1 to {MAX_BATCH}")
    check_whole("--vocabulary", vocabulary, BYTES, LARGEST, f"a whole number from {BYTES} to {LARGEST}")
    if plot is not None:
        _check_picture(plot)
    with warnings_as_sentences(), _named_options(), bar("reading") as progress:
        tokens = _tokens(file, vocabulary)
        progress(1, 3, "counting")
        answer = {"file": file, "vocabulary": vocabulary, "context": context, "batch": batch}
        answer |= offer(tokens, vocabulary, context)
        answer |= _expected(answer, batch)
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
        CORPORA[file].require(f"FILE {file}")
    text = read(file)
    if not text.strip():
        raise BadInput("FILE", file, "a file with text; this one is empty")
    if vocabulary > BYTES:
        require("text", f"--vocabulary {vocabulary}", "tokenizers")
    return tokenise(text, vocabulary)[0]


def _expected(answer: dict[str, Any], batch: int) -> dict[str, Any]:
    """When heads are expected to form on this text."""
    context = answer["context"]
    found = expected_formation(batch, context, answer["equivalent_burst"], OurRuns.read())
    seen = found.steps * batch * context
    return {
        "expected_steps": found.steps,
        "expected_interval": found.interval,
        "expected_tokens": seen,
        "expected_passes": seen / answer["tokens"],
        "expected_by": found.by,
        "expected_depends_on_text": found.depends_on_text,
        "expected_note": found.note,
        "published_steps": published_steps(batch, context),
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


@contextmanager
def _named_options() -> Iterator[None]:
    """Name a refused value by this command's argument or option."""
    try:
        yield
    except BadInput as e:
        if e.field not in OPTIONS:
            raise
        raise BadInput(OPTIONS[e.field], e.value, e.allowed) from e
