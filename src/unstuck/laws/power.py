"""Power laws of the plateau by least squares on logarithms (D.2, Eq. 22-23).

    log T_plateau = log C + sum_i x_i log term_i

Runs that did not emerge are counted as censored and left out here, which biases the law low; the fit says so. Runs of
one size that differ in their seed share whatever the law gets wrong there, so intervals rest on the means of sizes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.errors import BadInput
from unstuck.theory.setting import real

from .formula import Term, parse

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PowerLaw:
    """A fitted law. `exponents` and `intervals` are keyed by the terms as the user wrote them."""

    formula: str
    constant: float
    constant_interval: tuple[float, float]
    exponents: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    r2: float  # of log plateaus, over the emerged runs
    n: int  # emerged runs fitted
    censored: int  # runs that did not emerge, left out
    level: float  # of the intervals
    residuals: Array = field(repr=False)  # log measured - log fitted, in the order of the table
    terms: list[Term] = field(repr=False)

    def predict(self, table: Any) -> Array:
        """Plateau lengths that the law gives for the rows of a table, a mapping of columns or of numbers."""
        table = pd.DataFrame(table) if isinstance(table, pd.DataFrame) else {k: np.asarray(v) for k, v in table.items()}
        logs = np.log(self.constant)
        for term in self.terms:
            logs = logs + self.exponents[term.text] * np.log(term.evaluate(table))
        return np.asarray(np.exp(logs), dtype=float)

    def __str__(self) -> str:
        factors = " ".join(f"({text})^{x:.3g}" for text, x in self.exponents.items())
        return f"plateau = {self.constant:.3g} {factors}"

    def summary(self) -> pd.DataFrame:
        """A table to paste: one row for the constant and each exponent, with its interval."""
        rows = [("constant", self.constant, *self.constant_interval)]
        rows += [(text, x, *self.intervals[text]) for text, x in self.exponents.items()]
        return pd.DataFrame(rows, columns=["term", "estimate", "low", "high"]).set_index("term")

    def as_json(self) -> dict[str, Any]:
        return {
            "formula": self.formula,
            "constant": self.constant,
            "exponents": self.exponents,
            "intervals": {"constant": list(self.constant_interval)} | {k: list(v) for k, v in self.intervals.items()},
            "level": self.level,
            "r2": self.r2,
            "n": self.n,
            "censored": self.censored,
        }


def fit_power_law(table: Any, formula: str, *, level: float = 0.95) -> PowerLaw:
    """Fit `formula` to the emerged runs of a table (or mapping of columns) with `plateau_steps`.

    A `status` column, where there is one, says which runs emerged and which were censored; without it, those
    with a plateau emerged and the others were censored. Runs of any other status (failed, running) are not
    counted.

    Examples:
        >>> runs = pd.DataFrame({"T": [64, 128, 256, 512], "plateau_steps": [130.0, 255.0, 520.0, 1010.0]})
        >>> law = fit_power_law(runs, "T")
        >>> round(law.exponents["T"], 2), law.n
        (0.99, 4)
    """
    import statsmodels.api as sm  # a second to import, and only fits need it

    terms = parse(formula)
    for term in terms:
        if "plateau_steps" in term.columns:
            raise BadInput("formula", formula, "made of what the plateau depends on, not of plateau_steps itself")
    level = real("level", level, 0.01, 0.9999, "a number from 0.01 to 0.9999")
    table = pd.DataFrame(table)
    emerged = _emerged(table)
    runs = table[emerged]
    plateaus = pd.to_numeric(runs["plateau_steps"], errors="coerce").to_numpy(dtype=float)
    if np.any(~np.isfinite(plateaus)) or np.any(plateaus <= 0):
        raise BadInput("plateau_steps", "missing, infinite or not positive in an emerged run", "a number above 0")
    if len(runs) <= len(terms) + 1:
        need = f"a table of at least {len(terms) + 2} runs with status 'emerged' for {len(terms)} terms"
        raise BadInput("the table", f"one of {len(runs)} such runs", need)

    if np.ptp(np.log(plateaus)) < 1e-12:
        raise BadInput("plateau_steps", "the same in all emerged runs", "one that varies, to have a law")
    logs = np.column_stack([np.log(term.evaluate(runs)) for term in terms])
    _check_identified(terms, logs)
    result = sm.OLS(np.log(plateaus), sm.add_constant(logs, has_constant="add")).fit()
    sizes, cell, counts = np.unique(logs.round(9), axis=0, return_inverse=True, return_counts=True)
    judged = result
    if len(terms) + 1 < len(sizes) < len(runs):
        # The same estimates from the means over seeds, but as many observations as there are sizes.
        means = np.bincount(cell.ravel(), np.log(plateaus)) / counts
        judged = sm.WLS(means, sm.add_constant(sizes, has_constant="add"), weights=counts).fit()
    bounds = judged.conf_int(alpha=1 - level)
    names = [t.text for t in terms]
    return PowerLaw(
        formula=formula,
        constant=float(np.exp(result.params[0])),
        constant_interval=_pair(np.exp(bounds[0])),
        exponents=dict(zip(names, map(float, result.params[1:]), strict=True)),
        intervals=dict(zip(names, map(_pair, bounds[1:]), strict=True)),
        r2=float(result.rsquared),
        n=len(runs),
        censored=int((~emerged if "status" not in table else table["status"] == "censored").sum()),
        level=level,
        residuals=np.asarray(result.resid, dtype=float),
        terms=terms,
    )


def _pair(bounds: Array) -> tuple[float, float]:
    return float(bounds[0]), float(bounds[1])


def _emerged(table: pd.DataFrame) -> pd.Series:
    if "plateau_steps" not in table.columns:
        raise BadInput("the table", list(table.columns), "one with a column 'plateau_steps'")
    if "status" in table.columns:
        return table["status"] == "emerged"
    return table["plateau_steps"].notna()


def _check_identified(terms: list[Term], logs: Array) -> None:
    """A constant term, or two that move together, have no exponent of their own."""
    for term, column in zip(terms, logs.T, strict=True):
        if np.ptp(column) < 1e-9:
            raise BadInput(
                f"term {term.text!r}", "the same in all emerged runs", "one that varies, to have an exponent"
            )
    centred = (logs - logs.mean(axis=0)) / logs.std(axis=0)
    if np.linalg.matrix_rank(centred, tol=1e-7 * np.sqrt(len(logs))) < len(terms):
        names = ", ".join(repr(t.text) for t in terms)
        raise BadInput("formula", names, "terms that vary independently in the table; join those that move together")
