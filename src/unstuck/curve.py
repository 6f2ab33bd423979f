"""`Curve`: what was measured over training, one row per measurement.

This file and `columns.py` are the only ones that know how columns are named.
"""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unstuck.arrays import Columns, columns_of, numeric
from unstuck.columns import (
    ACCURACIES,
    ALIGNMENT,
    GROUP,
    LOSSES,
    OLD_ENTROPY,
    STEP,
    Row,
    Source,
    is_loss,
    numbered,
    pattern,
    place,
    predictor,
    renamed,
)
from unstuck.drawing import as_html, axes, draw_heads, draw_loss, figure_of
from unstuck.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
ENOUGH_ROWS = 10  # finite values that a loss needs to be judged by


class Curve:
    """What was measured over training: one row per measurement, in the order in which it was written.

    Training and `Watch` write one; `unstuck forecast` reads one from CSV, TensorBoard or Weights & Biases. Arrays have
    the rows of the curve along their first axis.

    Examples:
        >>> curve = Curve.from_rows([{"step": 0, "test_loss": 0.5, "attn_0_0": 0.1, "attn_1_1": 0.2}])
        >>> curve.heads("attention")
        array([[[0.1, nan],
                [nan, 0.2]]])
        >>> curve.measures, curve.best_head("attention"), curve.loss
        (['attention'], (1, 1), array([0.5]))
    """

    def __init__(self, table: "pd.DataFrame | Columns") -> None:
        """From a table, or arrays by name, with today's names and numbers in all columns; `from_frame` takes any
        other table."""
        self._columns: Columns = table if isinstance(table, dict) else columns_of(table)
        self._places: dict[str, dict[tuple[int, int], str]] = {}
        for column in self._columns:
            if found := place(column):
                self._places.setdefault(found[0], {})[found[1:]] = column

    @classmethod
    def from_frame(cls, frame: "pd.DataFrame", source: Source = "foreign") -> "Curve":
        """From a table with a column `step`. `source` decides what an old `entropy_L_H` was: at the read-out position
        in our runs, the mean over rows in a `Watch` and elsewhere. Columns of text are left out; a step, a loss or a
        head's measure must be numbers."""
        frame = frame.rename(columns=str)
        if STEP not in frame and len(frame):
            raise BadInput("the curve", f"one with {', '.join(frame)}", f"one with a column {STEP}")
        return cls(_numbers(renamed(frame, source)))

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, float]]) -> "Curve":
        """From rows as training and `Watch` write them; NaN where a row lacks a column of others."""
        rows = list(rows)
        names = dict.fromkeys(name for row in rows for name in row)
        return cls({str(name): numeric([row.get(name, np.nan) for row in rows]) for name in names})

    @classmethod
    def of(cls, curve: "Curve | pd.DataFrame") -> "Curve":
        """A curve as a user gives it: a Curve, or a table."""
        if isinstance(curve, Curve):
            return curve
        if any(str(c).startswith(f"{OLD_ENTROPY}_") for c in curve):
            new = " or ".join(pattern(f"{kind}_entropy") for kind in ("readout", "row"))
            warnings.warn(
                f"columns {OLD_ENTROPY}_L_H are now called {new} and are read as the latter; Curve.from_frame has an "
                "argument `source` for that; the next release drops the old name",
                FutureWarning,
                stacklevel=3,
            )
        return cls.from_frame(curve)

    @cached_property
    def _frame(self) -> "pd.DataFrame":
        import pandas as pd  # takes longer than most forecasts

        return pd.DataFrame(self._columns, copy=False)

    def to_frame(self) -> "pd.DataFrame":
        """A copy of the table, one column per measure."""
        return self._frame.copy()

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Curve) or self.columns != other.columns:
            return False
        pairs = ((mine, other._columns[name]) for name, mine in self._columns.items())
        return all(a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not len(self):
            return "Curve(no rows)"
        what = ", ".join([*([self.loss_name] if self.loss_name else []), *self.measures])
        return f"Curve({len(self)} rows, steps {self.steps.min():g} to {self.steps.max():g}: {what})"

    # -- numbers of the whole model

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    @property
    def steps(self) -> Array:
        return self.values(STEP)

    def values(self, name: str) -> Array:
        """A number for each row, by the name under which it was logged."""
        if name not in self._columns:
            raise BadInput("the curve", f"one with {', '.join(self.columns)}", f"one with {name}")
        return self._columns[name].astype(float)

    def has(self, *names: str) -> bool:
        return all(name in self._columns for name in names)

    @property
    def losses(self) -> list[str]:
        """The names of all losses."""
        return [c for c in self.columns if is_loss(c)]

    @property
    def loss_name(self) -> str | None:
        """The loss to judge by: on held-out data if that has enough values; `value` in a TensorBoard export."""
        named = sorted(self.losses, key=lambda c: not c.lower().endswith("loss"))  # before loss/auxiliary
        ordered = list(dict.fromkeys([*(c for c in LOSSES if c in self._columns), *named]))
        if not ordered:
            return next((c for c in self.columns if c.lower() == "value"), None)
        return next((c for c in ordered if np.isfinite(self.values(c)).sum() >= ENOUGH_ROWS), ordered[0])

    @property
    def loss(self) -> Array:
        """The loss to judge by, NaN where a row has none."""
        name = self.loss_name
        return np.full(len(self), np.nan) if name is None else self.values(name)

    @property
    def accuracy(self) -> Array | None:
        """The accuracy, on held-out data if it was measured there."""
        name = next((c for c in ACCURACIES if c in self._columns), None)
        return None if name is None else self.values(name)

    @property
    def rungs(self) -> Array:
        """KL of each truncated truth A*_{1:i} to the model, (rows, groups)."""
        return self._block(self.rung_names)

    @property
    def rung_names(self) -> list[str]:
        return numbered(self.columns, "kl")

    @property
    def references(self) -> Array:
        """KL to the predictions of each reference run, (rows, runs)."""
        return self._block(numbered(self.columns, "ref"))

    @property
    def contexts(self) -> dict[int, Array]:
        """KL to models of a restricted context, by the number of tokens they see, fewest first."""
        return {predictor(c)[1]: self.values(c) for c in self.context_names}

    @property
    def context_names(self) -> list[str]:
        return numbered(self.columns, "context")

    @property
    def ladder_names(self) -> list[str]:
        """The columns about truths, contexts and groups, in the order of the table."""
        groups = [m for m in self.measures if GROUP.fullmatch(m)]
        mine = {*self.rung_names, *self.context_names, *self.head_names(*groups)}
        return [c for c in self.columns if c in mine or ALIGNMENT.fullmatch(c)]

    # -- numbers of each head

    @property
    def measures(self) -> list[str]:
        """The measures of heads that the curve has."""
        return list(self._places)

    def head_names(self, *measures: str) -> list[str]:
        """The columns of these measures, in the order of the table."""
        mine = {c for measure in measures for c in self._places.get(measure, {}).values()}
        return [c for c in self.columns if c in mine]

    def head_places(self, measure: str) -> list[tuple[int, int]]:
        """Layer and head of every column of `flat(measure)`."""
        return list(self._known(measure))

    def heads(self, measure: str) -> Array:
        """A measure of every head, (rows, layers, heads); NaN where a head has none."""
        places = self._known(measure)
        layers, heads = (1 + max(at) for at in zip(*places, strict=True))
        out = np.full((len(self), layers, heads), np.nan)
        for (layer, head), column in places.items():
            out[:, layer, head] = self.values(column)
        return out

    def flat(self, *measures: str) -> Array:
        """The heads of all layers side by side, one measure after the other, (rows, heads)."""
        return self._block([c for measure in measures for c in self._known(measure).values()])

    def groups(self, *, readout: bool = False) -> Array:
        """Attention of every head to each group of positions, (rows, layers, heads, groups): from all rows, or from the
        read-out position alone."""
        name = "readout_group" if readout else "group"
        numbers = sorted(int(m.removeprefix(name)) for m in self.measures if re.fullmatch(f"{name}[0-9]+", m))
        if not numbers:
            self._known(f"{name}1")
        return np.stack([self.heads(f"{name}{g}") for g in numbers], axis=-1)

    @property
    def alignment(self) -> Array | None:
        """<V_head, A_group> / |A_group|², (rows, heads, groups); None for a model without value matrices."""
        found = {c: f for c in self.columns if (f := ALIGNMENT.fullmatch(c))}
        if not found:
            return None
        heads, groups = (max(int(f[i]) for f in found.values()) for i in (1, 2))
        out = np.full((len(self), heads + 1, groups), np.nan)
        for column, f in found.items():
            out[:, int(f[1]), int(f[2]) - 1] = self.values(column)
        return out

    def best(self, measure: str) -> Array:
        """The highest value among the heads in each row; NaN in a row that has none."""
        return np.fmax.reduce(self._block(list(self._known(measure).values())), axis=1)

    def best_head(self, measure: str) -> tuple[int, int]:
        """Layer and head with the highest value at the end."""
        places = self._known(measure)
        if not len(self):
            raise BadInput("the curve", "empty", "one with rows")
        last = {at: v for at, column in places.items() if (v := self.values(column)[-1]) == v}
        if not last:
            raise BadInput("the curve", "one without a number in its last row", f"one with {pattern(measure)} there")
        return max(last, key=lambda at: last[at])

    def ranked_heads(self, measure: str) -> list[tuple[int, int]]:
        """Heads by their value at the end, the highest first; equal ones in the order of the table."""
        places = self._known(measure)
        return sorted(places, key=lambda at: -self.values(places[at])[-1])

    def head(self, measure: str, layer: int, head: int) -> Array:
        """A measure of one head over training."""
        return self.values(self._known(measure)[layer, head])

    def _known(self, measure: str) -> dict[tuple[int, int], str]:
        if measure not in self._places:
            has = ", ".join(self.columns) or "no columns"
            raise BadInput("the curve", f"one with {has}", f"one with {pattern(measure)}, for layers and heads")
        return self._places[measure]

    def _block(self, columns: list[str]) -> Array:
        out = np.empty((len(self), len(columns)))
        for i, column in enumerate(columns):
            out[:, i] = self._columns[column]
        return out

    # -- parts

    @property
    def last(self) -> Row:
        """The finite values of the last row."""
        return self._row(len(self) - 1)

    def at(self, step: float) -> Row:
        """The finite values of the last row at or before a step."""
        known = np.flatnonzero(self.steps <= step)
        if not len(known):
            raise BadInput("step", step, f"at least {self.steps.min():g}, the first of the curve")
        return self._row(int(known[np.argmax(self.steps[known])]))

    def _row(self, i: int) -> Row:
        return {name: float(values[i]) for name, values in self._columns.items() if np.isfinite(values[i])}

    def truncate(self, step: float) -> "Curve":
        """The rows up to a step: what was known then."""
        return self.rows(self.steps <= step)

    def rows(self, which: Any) -> "Curve":
        """Some of the rows: a mask, a slice or their numbers."""
        if not isinstance(which, slice):
            which = np.asarray(which)
            which = which if which.size else which.astype(int)
        return Curve({name: values[which] for name, values in self._columns.items()})

    def sorted(self) -> "Curve":
        """In the order of steps."""
        return self.rows(np.argsort(self.steps, kind="stable"))

    def complete(self, *measures: str) -> "Curve":
        """The rows in which every head of these measures has a number, with only the step and these heads: loggers
        write the loss more often than attention. Heads without any number are left out. Without a measure: no rows."""
        kinds = [self._measured(measure) for measure in measures]
        names = [c for kind in kinds for c in kind]
        there = np.isfinite(self._block(names)).all(1) & all(kinds)
        return Curve({name: self._columns[name][there] for name in (STEP, *names)})

    def _measured(self, measure: str) -> list[str]:
        return [c for c in self._places.get(measure, {}).values() if np.isfinite(self.values(c)).any()]

    # -- a picture

    def plot(self, measure: str | None = None, ax: "Axes | None" = None) -> "Figure":
        """Draw the loss over steps, or every head of a measure, the best one in bold; on `ax` if it is given."""
        ax = axes("Curve.plot", ax)
        if measure is None:
            draw_loss(ax, self.steps, self.loss, self.loss_name or "loss")
        else:
            draw_heads(ax, self.steps, self.flat(measure), self.best(measure), measure)
        return figure_of(ax)

    def _repr_html_(self) -> str:
        rows = {m: "layer {}, head {}: {:.3g}".format(*self.best_head(m), self.best(m)[-1]) for m in self._final}
        return as_html(repr(self), rows, self.plot if self.loss_name else None)

    @property
    def _final(self) -> list[str]:
        """The measures that have a number in the last row."""
        return [m for m in self.measures if len(self) and np.isfinite(self.best(m)[-1])]

    # -- as the table that it was, for one release

    def __getitem__(self, key: Any) -> Any:
        self._was_a_table()
        return self._frame[key]

    def __contains__(self, column: object) -> bool:
        self._was_a_table()
        return column in self._frame

    def __iter__(self) -> Iterator[str]:
        self._was_a_table()
        return iter(self.columns)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self._frame, name):
            raise AttributeError(f"Curve has no attribute {name!r}")
        self._was_a_table()
        return getattr(self._frame, name)

    def _was_a_table(self) -> None:
        message = "a curve is a Curve, no longer a pandas table; the next release needs to_frame() for the table"
        warnings.warn(message, FutureWarning, stacklevel=3)


def _numbers(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table without its columns of text; steps, losses and measures of heads must be numbers."""
    import pandas as pd

    text = [c for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
    if not text:
        return frame
    needed = [c for c in text if c == STEP or "loss" in c.lower() or place(c)]
    try:
        found = {c: pd.to_numeric(frame[c]) for c in needed}
    except (TypeError, ValueError) as e:
        raise BadInput("the curve", f"one with {e}", "made of numbers") from e
    return frame.drop(columns=[c for c in text if c not in needed]).assign(**found)
