"""The exception for a user's mistake: it names the field, the value and what is allowed."""

import difflib
import reprlib
import warnings
from collections.abc import Iterable
from typing import Any


class BadInput(ValueError):
    """A value outside what is allowed. The command line turns it into one sentence and exit code 2."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        end = "" if allowed.endswith("?") else "."
        super().__init__(f"{field} is {_short(value)}, but must be {allowed}{end}")

    def __reduce__(self) -> tuple[Any, ...]:  # to be sent back from a worker
        return BadInput, (self.field, self.value, self.allowed)


class InvalidCombination(BadInput):
    """Values that are allowed each but not together; the sentence is the whole message."""

    def __init__(self, sentence: str) -> None:
        super().__init__("", "", "")
        self.args = (sentence.rstrip(".") + ".",)

    def __reduce__(self) -> tuple[Any, ...]:
        return InvalidCombination, self.args


def brief(error: BaseException, limit: int = 300) -> str:
    """Somebody else's error in one line: its type, and what it says.

    Examples:
        >>> brief(ValueError("two\\nlines"))
        'ValueError: two lines'
    """
    try:
        text = " ".join(str(error).split())
    except Exception:  # an error's own text may fail too
        text = ""
    return f"{type(error).__name__}: {text if len(text) <= limit else text[: limit - 3] + '...'}"


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the valid name that starts like `name` or resembles it, or nothing."""
    folded = {n.lower(): n for n in reversed(list(names))}
    starts = [n for n in folded if len(name) > 1 and n.startswith(name.lower())]
    close = sorted(starts)[:1] or difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""


def some(names: Iterable[str], most: int = 8) -> str:
    """The first of many names, and how many more there are: a message is one sentence.

    Examples:
        >>> some(["T", "d", "B"]), some("abcde", most=2)
        ('T, d, B', 'a, b and 3 more')
    """
    listed = list(map(str, names))
    more = len(listed) - most
    return ", ".join(listed) if more <= 1 else f"{', '.join(listed[:most])} and {more} more"


def printable(text: str, *, breaks: bool = True) -> str:
    """`text` without what a terminal would obey: control characters, and those that turn the direction of writing, are
    written out; line breaks and tabs too, unless `breaks`. Names and texts of files may hold any.

    Examples:
        >>> printable("red \\x1b[31m, √d")
        'red \\\\x1b[31m, √d'
    """
    if text.isprintable():
        return text
    kept = "\n\t" if breaks else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


_BRIEFLY = reprlib.Repr()  # reads no more of a value than it shows
_BRIEFLY.maxlevel, _BRIEFLY.maxlist, _BRIEFLY.maxtuple, _BRIEFLY.maxdict, _BRIEFLY.maxset = 3, 20, 20, 20, 20
_BRIEFLY.maxstring = _BRIEFLY.maxother = _BRIEFLY.maxlong = 200


def _short(value: object, limit: int = 60) -> str:
    try:
        text = " ".join(_BRIEFLY.repr(value).split("\n"))  # in one line: a tensor's has several
    except ValueError:  # Python refuses to print whole numbers of more than 4,300 digits
        return "a number too long to print"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def __getattr__(name: str) -> Any:
    if name == "Impossible":
        warnings.warn("unstuck.errors.Impossible is now InvalidCombination", FutureWarning, stacklevel=2)
        return InvalidCombination
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
