"""What the commands share: readers of option values, a progress bar, sentences on stderr."""

import os
import sys
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from unstuck.errors import BadInput, printable

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]


# Text that is not a number is passed on as text: the check that knows what is allowed refuses it in one sentence.
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


def processes(workers: Any) -> int:
    """The number of processes that `--workers` asks for; 0 means one for each core."""
    if not isinstance(workers, int) or not 0 <= workers <= 1024:
        raise BadInput("--workers", workers, "a whole number from 0 to 1024")
    return workers or os.cpu_count() or 1


@contextmanager
def named_options(names: Container[str]) -> Iterator[None]:
    """Name a refused value by its option."""
    try:
        yield
    except BadInput as e:
        if e.field not in names:
            raise
        raise BadInput(f"--{e.field}", e.value, e.allowed) from e


@contextmanager
def bar(name: str) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr that is removed at the end; silent where stderr is not a terminal. Call what it gives
    with the work done, the work in all and, if it changes, the text; the time left is at the speed so far."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from unstuck.view.console import console

    what, part = TextColumn("{task.description}", markup=False), TextColumn("{task.percentage:.0f}%")
    left, out = TimeRemainingColumn(elapsed_when_finished=True), console(stderr=True)
    columns = (what, BarColumn(), part, TimeElapsedColumn(), left)
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as shown:
        task = shown.add_task(name, total=None)

        def update(done: float, of: float, text: str = name) -> None:
            shown.update(task, completed=done, total=of, description=text)

        yield update


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Print warnings of the package as lines on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:  # they may say why it failed
            for w in caught:
                say(f"warning: {w.message}")


def say(text: object) -> None:
    """Print on stderr."""
    print(printable(str(text)), file=sys.stderr)


def show(text: object) -> None:
    """Print an answer on stdout."""
    print(printable(str(text)))
