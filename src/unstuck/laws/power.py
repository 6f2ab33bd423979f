"""Power laws of the plateau on logarithms (D.2, Eq. 22-23).

    log T_plateau = log C + sum_i x_i log term_i

Where all runs emerged, by least squares. A run that did not emerge by its last step has a longer plateau; it is used
as censored where that step is known (laws/censored.py), since leaving it out biases the law towards short plateaus.
Runs of one size that differ in their seed share the error of the law at that size, so intervals rest on sizes.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize

from unstuck.drawing import as_html, axes, draw_law, figure_of
from unstuck.errors import BadInput
from unstuck.scalars import real

from .censored import Data, Fit, fit
from .formula import Term, column, parse
from .gather import gather, spans, warn_of_unknown, which_emerged
from .least_squares import least_squares
from .tables import plain_status

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
#: Results of a run, which cannot be terms of a law.
OUTCOMES = ("plateau_steps", "steps", "seconds")
LONGER = "the length of the plateau"


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
    censored: int  # runs that did not emerge
    used: int  # of those, how many are used as censored at their last step
    level: float  # of the intervals
    residuals: Array = field(repr=False)  # log measured - log fitted of the emerged runs, in the order of the table
    terms: list[Term] = field(repr=False)
    data: Data = field(repr=False)  # all runs that were used, as logarithms from their means
    centre: Array = field(repr=False)  # those means
    ranges: dict[str, tuple[float, float]] = field(repr=False)  # of the columns, over the emerged runs
    offset: float = 0.0  # steps before the law begins: plateau = offset + constant * ...
    offset_in_doubt: bool = False  # whether the intervals include the error of the offset

    def predict(self, table: Any) -> Array:
        """Plateau lengths for the rows of a table, or for a mapping of columns or of numbers."""
        logs = np.log(self.constant)
        for term in self.terms:
            logs = logs + self.exponents[term.text] * np.log(term.evaluate(_columns(table)))
        return np.asarray(np.exp(logs) + self.offset, dtype=float)

    @cached_property
    def likely(self) -> Fit:
        """The law as a likelihood: the spread over sizes and seeds, and what is needed to predict with an interval."""
        return fit(self.data)

    @cached_property
    def judged(self) -> Fit:
        """The same with the error of a fitted offset as one more parameter, to first order."""
        return fit(replace(self.data, X=self._doubtful(self.data.X))) if self.offset_in_doubt else self.likely

    def _doubtful(self, rows: Array) -> Array:
        """Rows of the design with a column for the offset, if it was fitted."""
        return _with_offset(rows, self.likely.beta) if self.offset_in_doubt else rows

    @property
    def log_likelihood(self) -> float:
        """Of the logarithms of the plateaus, so that laws with and without an offset can be compared."""
        steps = np.exp(self.data.y[~self.data.censored])
        return self.likely.log_likelihood + float(np.sum(np.log1p(self.offset / steps)))

    @property
    def aic(self) -> float:
        """Akaike's criterion; laws over the same runs can be compared by it, less is better."""
        return 2 * (len(self.terms) + 2 + self.data.repeated + (self.offset > 0)) - 2 * self.log_likelihood

    def predict_interval(self, table: Any, level: float = 0.9) -> pd.DataFrame:
        """The plateau of a new run with its interval, for each row: `plateau`, `low`, `high`, and `beyond`. The latter
        names the terms outside the range of the emerged runs; else the columns outside it (T and B may be where T/B is
        not); else `LONGER` if the predicted plateau is longer than all of theirs; it is empty inside the range."""
        level = real("level", level, 0.01, 0.9999, "a number from 0.01 to 0.9999")
        sizes = _columns(table)
        logs = np.column_stack([np.log(np.atleast_1d(term.evaluate(sizes))) for term in self.terms])
        logs = logs - self.centre
        rows = np.column_stack([np.ones(len(logs)), logs])
        middle, low, high = self.judged.predicted(self._doubtful(rows), level)
        # Centred on the printed law, which differs from the likelihood's where least squares weighs sizes by runs.
        plateau = np.atleast_1d(self.predict(table))
        about = np.log(plateau - self.offset) - middle
        with np.errstate(over="ignore"):
            low, high = (np.exp(x + about) + self.offset for x in (low, high))
        if not np.isfinite(plateau).all():
            raise BadInput("sizes", sizes, "sizes whose plateau is finite")
        seen = self.data.X[~self.data.censored, 1:]  # beyond the emerged runs the law is not bounded from above
        texts = [term.text for term in self.terms]
        by_term = _outside(dict(zip(texts, logs.T, strict=True)), dict(zip(texts, spans(seen), strict=True)))
        by_column = _outside({c: np.broadcast_to(column(c, sizes), len(logs)) for c in self.ranges}, self.ranges)
        slopes = list(self.exponents.values())
        longer = logs @ slopes > (seen @ slopes).max() + 1e-9  # by the law, than those of all sizes that emerged
        beyond = [t or c or (LONGER if more else "") for t, c, more in zip(by_term, by_column, longer, strict=True)]
        return pd.DataFrame({"plateau": plateau, "low": low, "high": high, "beyond": beyond})

    def __str__(self) -> str:
        factors = " ".join(f"({text})^{x:.3g}" for text, x in self.exponents.items())
        before = f"{self.offset:.3g} + " if self.offset else ""
        return f"plateau = {before}{self.constant:.3g} {factors}"

    def summary(self) -> pd.DataFrame:
        """A table to paste: one row for the constant and each exponent, with its interval."""
        rows = [("constant", self.constant, *self.constant_interval)]
        rows += [(text, x, *self.intervals[text]) for text, x in self.exponents.items()]
        return pd.DataFrame(rows, columns=["term", "estimate", "low", "high"]).set_index("term")

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw measured plateaus against those of the law; on `ax` if it is given."""
        logs = (self.data.X[:, 1:] + self.centre) @ np.array(list(self.exponents.values()))
        fitted, measured = self.constant * np.exp(logs) + self.offset, np.exp(self.data.y) + self.offset
        ax = axes("PowerLaw.plot", ax)
        draw_law(ax, fitted, measured, self.data.censored, str(self))
        return figure_of(ax)

    def _repr_html_(self) -> str:
        rows: dict[str, Any] = {
            term: "{:.4g} ({:.4g} to {:.4g})".format(*values)
            for term, *values in self.summary().itertuples()  # the constant, then the exponents
        }
        rows |= {"R²": f"{self.r2:.4f}", "runs": f"{self.n} emerged, {self.censored} censored"}
        return as_html(f"{self} (intervals: {self.level:.0%})", rows, self.plot)

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
            "used": self.used,
            "offset": self.offset,
        }


def fit_power_law(
    table: Any,
    formula: str,
    *,
    level: float = 0.95,
    sizes: Sequence[str] = (),
    offset: float | Literal["fit"] = 0.0,
) -> PowerLaw:
    """Fit `formula` to the runs of a table (or mapping of columns) with `plateau_steps`.

    A `status` column, where there is one, says which runs emerged and which were censored; without it, those
    with a plateau emerged and the others were censored. Runs of any other status (failed, running) are not
    counted; where it is no status of a run, a warning says so. A column `steps` says by which step a censored run had
    not emerged; without that column it is left out. Runs are of one size if they agree in the columns that the formula
    names, and in `sizes`.

    With an `offset` the law is that of the steps after it: plateau = offset + constant * ...; "fit" takes the most
    likely one. Every run has some steps before the law begins; where plateaus are short, they bend it.

    Examples:
        >>> runs = pd.DataFrame({"T": [64, 128, 256, 512], "plateau_steps": [130.0, 255.0, 520.0, 1010.0]})
        >>> law = fit_power_law(runs, "T")
        >>> round(law.exponents["T"], 2), law.n
        (0.99, 4)
    """
    terms = _causes(formula)
    level = real("level", level, 0.01, 0.9999, "a number from 0.01 to 0.9999")
    table = plain_status(pd.DataFrame(table))
    emerged = which_emerged(table)
    warn_of_unknown(table)
    fitted = offset == "fit"
    if offset == "fit":
        offset = _likely_offset(gather(table, emerged, terms, sizes).data) if emerged.any() else 0.0
    offset = real("offset", offset, 0.0, 1e12, "a number of steps, at least 0")
    data, centre, late, ranges = gather(_after(table, emerged, offset), emerged, terms, sizes)
    in_doubt = fitted and offset > 0 and _can_judge_offset(data)
    estimate = (_from_all if data.censored.any() else _from_emerged)(data, centre, level, in_doubt)
    seen = data.y[~data.censored]
    names, bounds = [term.text for term in terms], estimate.bounds
    with np.errstate(over="ignore"):  # an interval may end at infinity
        constant, interval = float(np.exp(estimate.beta[0])), _pair(np.exp(bounds[0]))
    law = PowerLaw(
        formula=formula,
        constant=constant,
        constant_interval=interval,
        exponents=dict(zip(names, map(float, estimate.beta[1:]), strict=True)),
        intervals=dict(zip(names, map(_pair, bounds[1:]), strict=True)),
        r2=float(1 - estimate.residuals @ estimate.residuals / np.sum((seen - seen.mean()) ** 2)),
        n=len(seen),
        censored=late,
        used=len(data.y) - len(seen),
        level=level,
        residuals=estimate.residuals,
        terms=terms,
        data=data,
        centre=centre,
        ranges=ranges,
        offset=offset,
        offset_in_doubt=in_doubt,
    )
    vars(law).update(estimate.fits)
    return law


def _causes(formula: str) -> list[Term]:
    """The terms of a formula; a result of a run cannot be one."""
    terms = parse(formula)
    outcomes = [c for term in terms for c in term.columns if c in OUTCOMES or c.startswith("crossing_")]
    if outcomes:
        allowed = f"made of what the plateau depends on; {outcomes[0]} is a result of the run"
        raise BadInput("formula", formula, allowed)
    return terms


def _after(table: pd.DataFrame, emerged: pd.Series, offset: float) -> pd.DataFrame:
    """The table with steps counted from the offset."""
    if not offset:
        return table
    columns = [c for c in ("plateau_steps", "steps") if c in table]
    table = table.assign(**{c: pd.to_numeric(table[c], errors="coerce") - offset for c in columns})
    if (table.loc[emerged, "plateau_steps"] <= 0).any():
        raise BadInput("offset", offset, "below the shortest plateau")
    return table


def _can_judge_offset(data: Data) -> bool:
    """Are there more sizes than parameters, with the offset as one? A warning says if not."""
    parameters = data.X.shape[1] + 1
    if data.units > parameters:
        return True
    few = f"{data.units:.0f} sizes for {parameters} parameters cannot give an error for the fitted offset"
    warnings.warn(f"{few}: the intervals treat it as known and are too short", UserWarning, stacklevel=3)
    return False


class _Estimate(NamedTuple):
    """Constant (at terms of 1) and exponents with their bounds, and the residuals of the emerged runs."""

    beta: Array  # (k,)
    bounds: Array  # (k, 2)
    residuals: Array
    fits: dict[str, Fit]  # the likelihoods that were fitted on the way, by the law's attributes


def _from_emerged(data: Data, centre: Array, level: float, in_doubt: bool) -> _Estimate:
    """By least squares. With several seeds a size the intervals rest on the means of sizes."""
    y, X, cell = data.y, np.column_stack([np.ones(len(data.y)), data.X[:, 1:] + centre]), data.size
    found = least_squares(X, y)
    k, counts = X.shape[1], np.bincount(cell)
    judged_X = np.column_stack([X, _with_offset(data.X, found.estimates)[:, -1]]) if in_doubt else X
    if k < len(counts) < len(y):
        # The same estimates from the means over seeds, but as many observations as there are sizes.
        means = np.column_stack([np.bincount(cell, x) / counts for x in (y, *judged_X.T)])
        judged = least_squares(means[:, 1:], means[:, 0], counts.astype(float))
    else:
        judged = least_squares(judged_X, y)
        if len(counts) < len(y):
            few = f"{len(counts)} sizes for {k} parameters: the law passes through all of them"
            warnings.warn(f"{few}, so its intervals rest on seeds alone", UserWarning, stacklevel=3)
    half = judged.half_widths(level)[:k]
    bounds = np.column_stack([found.estimates - half, found.estimates + half])
    return _Estimate(found.estimates, bounds, y - X @ found.estimates, fits={})


def _from_all(data: Data, centre: Array, level: float, in_doubt: bool) -> _Estimate:
    """By likelihood, with the runs that did not emerge as censored observations."""
    likely = fit(data)
    judged = fit(replace(data, X=_with_offset(data.X, likely.beta))) if in_doubt else likely
    back = np.array([1.0, *-centre])  # the constant, where all logarithms are 0
    k = len(back)
    constant = float(back @ likely.beta)
    doubt = float(np.sqrt(back @ judged.covariance[:k, :k] @ back) * judged.quantile(level))
    exponents = [np.array(judged.interval(i, level)) - judged.beta[i] + likely.beta[i] for i in range(1, k)]
    return _Estimate(
        beta=np.array([constant, *likely.beta[1:]]),
        bounds=np.array([(constant - doubt, constant + doubt), *exponents]),
        residuals=(data.y - data.X @ likely.beta)[~data.censored],
        fits={"likely": likely, "judged": judged},
    )


def _with_offset(rows: Array, beta: Array) -> Array:
    """With one more column, 1 / (plateau of the law without offset and constant): the derivative of the log plateau by
    the offset, up to a factor."""
    return np.column_stack([rows, np.exp(-rows[:, 1:] @ beta[1:])])


def _likely_offset(data: Data) -> float:
    """The most likely offset, below the shortest plateau."""
    steps = np.exp(data.y)

    def loss(offset: float) -> float:
        after = steps - offset
        there = after > 0
        seen = there & ~data.censored
        found = fit(replace(data.part(there), y=np.log(after[there]))).log_likelihood
        return -found - float(np.sum(np.log1p(offset / after[seen])))

    bounds = (0.0, 0.9 * float(steps[~data.censored].min()))
    best = optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.5})
    return float(best.x) if best.fun < loss(0.0) else 0.0


def _columns(table: Any) -> Any:
    return table if isinstance(table, pd.DataFrame) else {k: np.asarray(v) for k, v in table.items()}


def _outside(values: dict[str, Array], spans: dict[str, tuple[float, float]]) -> list[str]:
    """For each row, the names of the values outside their spans."""
    names: list[list[str]] = [[] for _ in next(iter(values.values()))]
    for name, (low, high) in spans.items():
        slack = 1e-9 * max(1.0, abs(low), abs(high))
        for row in np.flatnonzero((values[name] < low - slack) | (values[name] > high + slack)):
            names[row].append(name)
    return [", ".join(row) for row in names]


def _pair(bounds: Array) -> tuple[float, float]:
    return float(bounds[0]), float(bounds[1])
