"""A table of many rows as text: columns padded with blanks, one line a row. Rich takes some 5 ms a row for the same."""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

from unstuck.errors import printable

GAP = "  "  # between columns
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


def print_table(columns: Mapping[str, Sequence[str]]) -> None:
    """Print columns of text side by side. On a terminal those that do not fit in its width are named below instead of
    shown, so that no line is folded; a file or a pipe gets all."""
    padded = {one_line(name): _padded([name, *texts]) for name, texts in columns.items()}
    terminal = sys.stdout.isatty()
    fit = _fitting(padded, terminal_width())
    header, *lines = map(GAP.join, zip(*list(padded.values())[:fit], strict=True))
    bold = terminal and "NO_COLOR" not in os.environ
    print(f"{BOLD}{header.rstrip()}{PLAIN}" if bold else header.rstrip())
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))
    if fit < len(padded):
        print(f"\nnot shown, since the terminal is too narrow: {', '.join(list(padded)[fit:])}; --csv prints all")


def terminal_width() -> float:
    """Columns of the terminal; a file or a pipe has no end."""
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else math.inf


def cut(text: str, width: float) -> str:
    """A text that takes no more than so many columns.

    Examples:
        >>> cut("the plateau grows", 9), cut("short", 9)
        ('the plat…', 'short')
    """
    if _width(text) <= width:
        return text
    while text and _width(text) >= width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def one_line(text: str) -> str:
    """A text with line breaks and control characters written out."""
    return printable(text, breaks=False)


def _padded(texts: list[str]) -> list[str]:
    """The texts of a column, all as wide as the widest."""
    whole = "".join(texts)
    if not whole.isprintable():
        texts = [one_line(text) for text in texts]
    if whole.isascii():
        width = max(map(len, texts))
        return [text.ljust(width) for text in texts]
    wide = {text: _width(text) for text in set(texts)}
    width = max(wide.values())
    return [text + " " * (width - wide[text]) for text in texts]


def _fitting(padded: Mapping[str, list[str]], width: float) -> int:
    """How many columns fit into a line; the first one is always shown."""
    used = -len(GAP)
    for place, cells in enumerate(padded.values()):
        used += len(GAP) + _width(cells[0])
        if used > width and place:
            return place
    return len(padded)


def _width(text: str) -> int:
    """The columns of a terminal that a line of text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def shown(value: Any, digits: int = 4) -> str:
    """A value as text; a dash for a missing one."""
    if value is None or value != value:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
