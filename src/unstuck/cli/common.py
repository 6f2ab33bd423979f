"""What the commands share: the application, readers of option values, progress bars, sentences on stderr."""

import sys
import warnings
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unstuck.errors import BadInput

if TYPE_CHECKING:
    from unstuck.papers.figure import Progress

app = typer.Typer(
    name="unstuck",
    help="How long a Transformer sits on a plateau, why, and how to get it off sooner.",
    epilog="Start with: unstuck predict --T 512 --d 64",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]


# What is not a number is passed on as text: the check that knows what is allowed refuses it, in one sentence.
def whole(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def real(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


@contextmanager
def named_options(names: Container[str]) -> Iterator[None]:
    """Name a refused value by the option it was given with."""
    try:
        yield
    except BadInput as e:
        if e.field not in names:
            raise
        raise BadInput(f"--{e.field}", e.value, e.allowed) from e


@contextmanager
def bar(name: str) -> Iterator["Progress"]:
    """A progress bar on stderr, gone when the work is done; silent where stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TimeElapsedColumn, TimeRemainingColumn

    bar = Bar(
        *Bar.get_default_columns()[:-1],
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(name, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def work_bar() -> Iterator[Any]:
    """One bar for a sweep; its time to finish is what is left of the predicted work at the speed so far."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f}%"), TimeElapsedColumn())
    with Progress(
        *columns, TimeRemainingColumn(elapsed_when_finished=True), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, of, text: bar.update(task, completed=done, total=of, description=text)


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """What a part of the package warns of, as a line on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:  # they may say why it failed
            for w in caught:
                say(f"warning: {w.message}")


def say(text: str) -> None:
    print(text, file=sys.stderr)
