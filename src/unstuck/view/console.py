"""How the command prints: consoles, tables, durations."""

from rich.console import Console
from rich.table import Table


def console() -> Console:
    return Console(highlight=False, soft_wrap=True)


def new_table(*columns: str, whole: int = 1) -> Table:
    """An empty table; its first `whole` columns are never folded, since names and ids are typed again."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place < whole)
    return table


def print_rows(table: Table) -> None:
    """Print a table with one line a row; a row that is wider than the terminal is cut, not folded."""
    wide = Console(width=10_000).measure(table).maximum
    Console(highlight=False, soft_wrap=True, width=max(wide, console().width)).print(table)


def duration(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 1:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.1f} h"
