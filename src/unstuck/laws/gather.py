"""The runs of a table as logarithms, to fit a law to: those that emerged, and censored ones with a known last step."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.errors import BadInput

from .censored import Data
from .formula import Term, column

Array = NDArray[np.float64]
#: Every other status of a run, beside emerged and censored.
UNCOUNTED = {"diverged", "failed", "finished", "interrupted", "running", "stopped", "watched"}


class Gathered(NamedTuple):
    data: Data
    centre: Array  # the means that were taken off the logarithms of the terms
    late: int  # runs that did not emerge, including those whose last step is not known
    ranges: dict[str, tuple[float, float]]  # of the formula's columns, over the runs that emerged


def gather(table: pd.DataFrame, emerged: pd.Series, terms: list[Term], sizes: Sequence[str]) -> Gathered:
    """The runs of a table as logarithms: those that emerged, then the censored ones whose last step is known."""
    runs = table[emerged]
    plateaus = pd.to_numeric(runs["plateau_steps"], errors="coerce").to_numpy(dtype=float)
    if np.any(~np.isfinite(plateaus)) or np.any(plateaus <= 0):
        raise BadInput("plateau_steps", "missing, infinite or not positive in an emerged run", "a number above 0")
    if len(runs) <= len(terms) + 1:
        need = f"at least {len(terms) + 2}, to fit {len(terms)} terms; `unstuck sweep` makes more"
        raise BadInput("the number of runs with status 'emerged'", len(runs), need)

    if np.ptp(np.log(plateaus)) < 1e-12:
        raise BadInput("plateau_steps", "the same in all emerged runs", "one that varies, to have a law")
    late = ~emerged if "status" not in table else table["status"] == "censored"
    ended = table[late & _known_end(table)]
    used = pd.concat([runs, ended])
    logs = np.column_stack([np.log(term.evaluate(used)) for term in terms])
    _check_identified(terms, logs[: len(runs)])
    centre = logs.mean(0)
    named = list(dict.fromkeys(c for term in terms for c in term.columns))
    raw = np.column_stack([column(name, used) for name in dict.fromkeys([*named, *sizes])])
    _, cell = np.unique(raw, axis=0, return_inverse=True)
    steps = np.concatenate([plateaus, ended["steps"].to_numpy(dtype=float) if len(ended) else []])
    data = Data(
        X=np.column_stack([np.ones(len(logs)), logs - centre]),
        y=np.log(steps),
        censored=np.arange(len(logs)) >= len(runs),
        size=cell.ravel(),
    )
    ranges = dict(zip(named, spans(raw[: len(runs), : len(named)]), strict=True))
    return Gathered(data, centre, int(late.sum()), ranges)


def _known_end(table: pd.DataFrame) -> pd.Series:
    """Rows whose last step is known."""
    if "steps" not in table:
        return pd.Series(data=False, index=table.index)
    steps = pd.to_numeric(table["steps"], errors="coerce")
    return steps.gt(0) & np.isfinite(steps)


def spans(values: Array) -> list[tuple[float, float]]:
    """The lowest and highest value of each column."""
    return [(float(low), float(high)) for low, high in zip(values.min(0), values.max(0), strict=True)]


def which_emerged(table: pd.DataFrame) -> pd.Series:
    if "plateau_steps" not in table.columns:
        raise BadInput("the table", list(table.columns), "one with a column 'plateau_steps'")
    if "status" in table.columns:
        return table["status"] == "emerged"
    return table["plateau_steps"].notna()


def warn_of_unknown(table: pd.DataFrame) -> None:
    """Warn of an unknown status: leaving out runs that did not emerge biases the law."""
    if "status" not in table.columns:
        return
    status = table["status"].fillna("none")
    unknown = status[~status.isin({"emerged", "censored", *UNCOUNTED})]
    if len(unknown):
        words = ", ".join(sorted(map(repr, set(unknown)))[:4])
        left_out = f"runs with status {words} are not counted, {len(unknown)} in all"
        warnings.warn(f"{left_out}: the status must be 'emerged' or 'censored' to count", UserWarning, stacklevel=3)


def _check_identified(terms: list[Term], logs: Array) -> None:
    """A constant term, and terms that are proportional, have no exponent of their own."""
    for term, values in zip(terms, logs.T, strict=True):
        if np.ptp(values) < 1e-9:
            raise BadInput(
                f"term {term.text!r}", "the same in all emerged runs", "one that varies, to have an exponent"
            )
    centred = (logs - logs.mean(axis=0)) / logs.std(axis=0)
    if np.linalg.matrix_rank(centred, tol=1e-7 * np.sqrt(len(logs))) < len(terms):
        names = ", ".join(repr(t.text) for t in terms)
        raise BadInput("formula", names, "terms that vary independently in the table; join those that move together")
