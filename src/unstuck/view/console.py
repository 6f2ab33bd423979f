"""How the command prints: consoles, tables, durations."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from unstuck.errors import printable


class PlainConsole(Console):
    """A console for text of files and of users: [red] in it is text, not markup, and control characters are written
    out. What is ours is styled by `style=` and `Text.assemble`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)  # before a table measures it

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def console(*, stderr: bool = False) -> Console:
    return PlainConsole(soft_wrap=not stderr, stderr=stderr)


def new_table(*columns: str, whole: int = 1) -> Table:
    """An empty table; its first `whole` columns are never folded, since names and ids are typed again."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place < whole)
    return table


def print_rows(table: Table) -> None:
    """Print a table with one line a row; a row that is wider than the terminal is cut, not folded."""
    wide = PlainConsole(width=10_000).measure(table).maximum
    PlainConsole(soft_wrap=True, width=max(wide, console().width)).print(table)


def duration(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 1:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.1f} h"
