"""What a figure is: settings, data, a drawing and the paper's numbers. A file, or a row of a table of figures alike.

A figure module has a docstring whose first line is its title (a row, which is an object, has a `title`), and

    plan(profile) -> list[Job]               what it would run, and how long that takes
    data(profile, progress) -> DataFrame     run it: a tidy table from which the rest follows
    draw(table) -> matplotlib Figure         the picture, from the table alone
    compare(table) -> list[Claim]            ours beside the paper's, from the table alone

A figure of trained runs has `runs(profile)` instead of `plan` (lab.py). Its table is that of its finished runs unless
it has `data(done)`, which makes one of what the store has of them (finished.py). A figure of theory may also have
`overlaid(profile)`, runs that its `data` draws on where the store has them. Where claims are too many to read at once,
`overview(table) -> DataFrame` is the small table that goes into a page. What `draw` and `compare` both compute from the
table, such as a law, is a function marked `@once`.
"""

import functools
import importlib
import re
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import pandas as pd
from matplotlib.figure import Figure as Picture

from unstuck.errors import BadInput, nearest

from .catalogue import Profile as Profile  # figures import it from here
from .catalogue import entries, from_packages, is_available, place_of

Progress = Callable[[int, int], None]  # (done, of how many)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A piece of work a figure needs: how many times `what`, and what that costs on one core of a laptop."""

    what: str
    count: int
    seconds: float
    steps: int = 0  # optimisation steps in all; none for an ordinary differential equation
    flops: float = 0.0  # floating-point operations of those steps
    gpu_hours: float = 0.0  # one run after another on one GPU (runner/cost.py says which)


@dataclass(frozen=True)
class Claim:
    """One number or statement of the paper beside ours. `agrees` is None where the paper has none, or none that is
    measured alike and only stands beside."""

    quantity: str
    ours: float | str
    paper: float | str | None = None
    agrees: bool | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        return {True: "agrees", False: "differs", None: "new" if self.paper is None else "beside"}[self.agrees]

    @classmethod
    def number(cls, quantity: str, ours: float, paper: float, within: float, why: str = "") -> "Claim":
        """A number that agrees when it is at most `within` from the paper's; `why` is said where it does not."""
        agrees = bool(abs(ours - paper) <= within)
        return cls(quantity, float(ours), paper, agrees, "" if agrees else why)


def once(fit: Callable[P, T]) -> Callable[P, T]:
    """A function, or a method of a row, whose last argument is a table: computed once for a table, though `draw` and
    `compare` both call it."""
    known: dict[tuple[int, ...], tuple[weakref.ref[Any], T]] = {}  # of the last table, for each row

    @functools.wraps(fit)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> T:
        *row, table = args
        place = tuple(map(id, row))
        if place not in known or known[place][0]() is not table:
            known[place] = weakref.ref(table), fit(*args, **kwargs)
        return known[place][1]

    return remembered


class FigureModule(Protocol):
    __doc__: str | None
    __name__: str

    def plan(self, profile: Profile) -> list[Job]: ...
    def data(self, profile: Profile, progress: Progress) -> pd.DataFrame: ...
    def draw(self, table: pd.DataFrame) -> Picture: ...
    def compare(self, table: pd.DataFrame) -> list[Claim]: ...


def load(name: str) -> FigureModule:
    """The figure called `name`: by its file, or by an entry point `unstuck.figures` of another package."""
    known = entries()
    if name not in known:
        alike = [figure for figure in known if re.fullmatch(re.escape(name) + "[-a-z]+", figure)]
        meant = f"; did you mean {', '.join(alike)}?" if len(alike) > 1 else nearest(name, [*known, "all"])
        raise BadInput("figure", name, f"a figure that `unstuck figures` lists, 'theory' or 'all'{meant}")
    if not is_available(name):
        raise BadInput("figure", name, f"one that is available; this one still needs {known[name].needs}")
    if name in from_packages():
        return cast(FigureModule, from_packages()[name].load())
    module, row = place_of(name)
    found = importlib.import_module(module)
    return cast(FigureModule, found.FIGURES[row] if row else found)


def is_trained(figure: Any) -> bool:
    """Does the figure need trained runs?"""
    return hasattr(figure, "runs")


def in_one_go(figure: Any) -> bool:
    """Is the figure trained by its own `data`, in a tier but without a store to go on from?"""
    return hasattr(figure, "TIER") and not is_trained(figure)


def is_outdated(result: dict[str, Any], figure: Any) -> bool:
    """Was the result of a figure that is trained in one go made with other sizes or steps than it has now?"""
    stated = result.get("spec", {})
    return in_one_go(figure) and any(
        stated.get(name, {}).get(result["profile"]) != getattr(figure, name)[result["profile"]]
        for name in ("SIZES", "STEPS")
    )


def in_parts(figure: Any) -> bool:
    """May the figure be drawn before all its runs are finished? One that does not say so waits for all of them: a law
    of half a grid would mislead."""
    return bool(getattr(figure, "IN_PARTS", getattr(figure, "in_parts", False)))


def title(figure: Any) -> str:
    """What a figure is called: its `title`, or the first line of its file."""
    first = getattr(figure, "title", None) or (figure.__doc__ or figure.__name__).strip().splitlines()[0]
    return str(first).rstrip(".")


def overall(verdicts: Iterable[str]) -> str:
    """One word for many verdicts: `differs` if any does, `agrees` if one does, else `beside` or `new`."""
    found = set(verdicts)
    return next(v for v in ("differs", "agrees", "beside", "new") if v in found)
