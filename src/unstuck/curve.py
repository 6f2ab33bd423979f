"""`Curve`: what was measured over training, a row a measurement; the one file that knows how columns are named.

A curve is stored and exchanged as a table. Its columns are

    step                                 of the optimiser
    test_loss, train_accuracy, ...       SET_MEASURE, and any other number that was logged
    attn_0_2, copy_0_2, ...              MEASURE_LAYER_HEAD: a measure of one head (`MEASURES`), counted from 0
    group1_0_2, readout_group1_0_2       attention of a head to a group of positions, from all rows or the last one
    align_2_1                            HEAD_GROUP: <V_head, A_group> / |A_group|², groups counted from 1
    kl_1, kl_2, ...                      KL of the truncated truths A*_{1:i} to the model
    ref_1, ref_2, ... and context_4      KL to the predictions of other runs, and to models of a restricted context

Tables of earlier versions have `entropy_L_H`, which was two things: in our runs the entropy at the position the answer
is read at, in those of a `Watch` the mean over all rows. Reading gives them the two names they have now.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Row = dict[str, float]
Source = Literal["run", "watch", "foreign"]

#: Columns of the whole model, by name.
STEP, EVALUATED, REPETITION = "step", "evaluated", "repetition"
TRAIN_LOSS, TEST_LOSS, CLEAN_LOSS, LIKE_LOSS = "train_loss", "test_loss", "clean_loss", "like_loss"
TRAIN_ACCURACY, TEST_ACCURACY = "train_accuracy", "test_accuracy"
CLEAN_ACCURACY, LIKE_ACCURACY = "clean_accuracy", "like_accuracy"
EXCESS_LOSS, GRAD_NORM, SPECIALISATION = "excess_loss", "grad_norm", "specialisation"
RUNGS = "kl_1, kl_2, ..."  # as a message asks for them
#: What is measured of a head, in the field's words, and how its columns begin.
MEASURES = {
    "attention": "attn",  # from the read-out position to the relevant tokens
    "copying": "copy",  # from a value to its key
    "induction": "induction",  # to the token that came after the same token the last time
    "readout_entropy": "readout_entropy",  # of attention from the read-out position, 1 where uniform
    "row_entropy": "row_entropy",  # mean over all rows, 1 where uniform
    "distance": "distance",  # in tokens, mean over all rows
}
OLD_ENTROPY = "entropy"  # how the columns of either entropy began
NEW_ENTROPY = {"run": "readout_entropy", "watch": "row_entropy", "foreign": "row_entropy"}
ENOUGH_ROWS = 10  # with a finite value: of a loss that has fewer nothing can be told

_NUMBER = "(0|[1-9][0-9]*)"
_GROUP = re.compile("(?:readout_)?group[1-9][0-9]*")
_PREFIXES = "|".join([*MEASURES.values(), OLD_ENTROPY, _GROUP.pattern])
_HEAD = re.compile(f"({_PREFIXES})_{_NUMBER}_{_NUMBER}")
_ALIGNMENT = re.compile(f"align_{_NUMBER}_{_NUMBER}")
_LOSS = re.compile(r"loss(?![a-z_]*(scale|weight))")  # the scale and the weight of a loss are none
#: Names of a loss, that on held-out data first.
_LOSSES = (TEST_LOSS, "eval_loss", "val_loss", "eval/loss", "val/loss", "loss", TRAIN_LOSS, "train/loss")
_ACCURACIES = (TEST_ACCURACY, "eval_accuracy", "val_accuracy", "accuracy", TRAIN_ACCURACY)


# -- names of columns


def head_columns(measure: str, layer: int, values: Iterable[float]) -> Row:
    """A number of each head of a layer, by the names of its columns.

    Examples:
        >>> head_columns("attention", 0, [0.25, 0.5])
        {'attn_0_0': 0.25, 'attn_0_1': 0.5}
    """
    prefix = MEASURES.get(measure, measure)
    return {f"{prefix}_{layer}_{head}": float(value) for head, value in enumerate(values)}


def at_readout(measure: str) -> str:
    """The measure of a group from the read-out position alone."""
    return f"readout_{measure}"


def alignment_columns(alignment: Sequence[Sequence[float]]) -> Row:
    """A number of each head and group."""
    return {f"align_{h}_{g + 1}": float(a) for h, row in enumerate(alignment) for g, a in enumerate(row)}


def reference_columns(distances: Iterable[float]) -> Row:
    """KL to the predictions of each run that is compared with."""
    return {f"ref_{i + 1}": float(x) for i, x in enumerate(distances)}


def set_columns(measure: str, values: Mapping[str, float]) -> Row:
    """A measure on each set of sequences: `test_loss`, `clean_loss`, ..."""
    return {f"{name}_{measure}": value for name, value in values.items()}


def context_columns(contexts: Iterable[int]) -> dict[str, str]:
    """New names of the references where they are models of a restricted context: {"ref_1": "context_4"}."""
    return {f"ref_{i + 1}": f"context_{context}" for i, context in enumerate(contexts)}


def predictor(column: str) -> tuple[str, int]:
    """What a KL is to: `("truth", 2)` the truncated truth A*_{1:2}, `("context", 4)` a model that sees 4 tokens."""
    name, _, number = column.rpartition("_")
    return {"kl": "truth", "context": "context"}[name], int(number)


def pattern(measure: str) -> str:
    """How the columns of a measure look, for messages: `attn_L_H`."""
    return f"{MEASURES.get(measure, measure)}_L_H"


def place(column: str) -> tuple[str, int, int] | None:
    """Measure, layer and head of a column; None for a column that is of no head.

    Examples:
        >>> place("attn_0_2"), place("readout_group1_3_0"), place("kl_1")
        (('attention', 0, 2), ('readout_group1', 3, 0), None)
    """
    found = _HEAD.fullmatch(column)
    return (_measure(found[1]), int(found[2]), int(found[3])) if found else None


def _measure(prefix: str) -> str:
    return next((measure for measure, known in MEASURES.items() if known == prefix), prefix)


def _numbered(columns: Iterable[str], name: str) -> list[str]:
    """The columns `name_1`, `name_2`, ... in the order of their numbers."""
    found = ((c, re.fullmatch(f"{name}_{_NUMBER}", c)) for c in columns)
    return [c for c, _ in sorted(((c, int(f[1])) for c, f in found if f), key=lambda pair: pair[1])]


def is_loss(column: str) -> bool:
    return _LOSS.search(column.lower()) is not None


def renamed(frame: pd.DataFrame, source: Source | Callable[[], Source]) -> pd.DataFrame:
    """A table with today's names for columns of earlier versions; whose it is need be found out only if it has any."""
    old = [str(c) for c in frame if str(c).startswith(f"{OLD_ENTROPY}_")]
    if not old:
        return frame
    whose = source() if callable(source) else source
    return frame.rename(columns={c: _renamed(c, whose) for c in old})


def renamed_row(row: Mapping[str, float], source: Source) -> Row:
    return {_renamed(name, source): value for name, value in row.items()}


def _renamed(column: str, source: Source) -> str:
    found = _HEAD.fullmatch(column)
    if found is None or found[1] != OLD_ENTROPY:
        return column
    return f"{NEW_ENTROPY[source]}_{found[2]}_{found[3]}"


# -- the curve


class Curve:
    """What was measured over training, a row a measurement, in the order in which it was written.

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

    def __init__(self, frame: pd.DataFrame) -> None:
        """From a table with today's names and numbers in all columns; `from_frame` takes any other."""
        self._frame = frame
        self._places: dict[str, dict[tuple[int, int], str]] = {}
        for column in map(str, frame):
            if found := place(column):
                self._places.setdefault(found[0], {})[found[1:]] = column

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: Source = "foreign") -> "Curve":
        """From a table with a column `step`. `source` says whose it is, which decides what an old `entropy_L_H` was:
        at the read-out position in our runs, the mean over rows in a `Watch` and elsewhere. Columns of text are left
        out; a step, a loss or a head's measure must be numbers."""
        frame = frame.rename(columns=str)
        if STEP not in frame and len(frame):
            raise BadInput("the curve", f"one with {', '.join(frame)}", f"one with a column {STEP}")
        return cls(_numbers(renamed(frame, source)))

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, float]]) -> "Curve":
        """From rows as training and `Watch` write them."""
        return cls(pd.DataFrame(list(rows)))

    @classmethod
    def of(cls, curve: "Curve | pd.DataFrame") -> "Curve":
        """A curve as a user hands it over: this, or a table of their own."""
        if isinstance(curve, Curve):
            return curve
        if any(str(c).startswith(f"{OLD_ENTROPY}_") for c in curve):
            new = " or ".join(pattern(f"{kind}_entropy") for kind in ("readout", "row"))
            warnings.warn(
                f"columns {OLD_ENTROPY}_L_H are called {new} now, and are read as the latter: use Curve.from_frame to "
                "say whose they are; the old name goes with the next release",
                FutureWarning,
                stacklevel=3,
            )
        return cls.from_frame(curve)

    def to_frame(self) -> pd.DataFrame:
        """The table, with a column a measure; a copy."""
        return self._frame.copy()

    def __len__(self) -> int:
        return len(self._frame)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self._frame.equals(other._frame)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not len(self):
            return "Curve(no rows)"
        what = ", ".join([*([self.loss_name] if self.loss_name else []), *self.measures])
        return f"Curve({len(self)} rows, steps {self.steps.min():g} to {self.steps.max():g}: {what})"

    # -- numbers of the whole model

    @property
    def columns(self) -> list[str]:
        return list(map(str, self._frame))

    @property
    def steps(self) -> Array:
        return self.values(STEP)

    def values(self, name: str) -> Array:
        """A number of each row, by the name under which it was logged."""
        if name not in self._frame:
            raise BadInput("the curve", f"one with {', '.join(self.columns)}", f"one with {name}")
        return self._frame[name].to_numpy(dtype=float)

    def has(self, *names: str) -> bool:
        return all(name in self._frame for name in names)

    @property
    def losses(self) -> list[str]:
        """The names of all losses."""
        return [c for c in self.columns if is_loss(c)]

    @property
    def loss_name(self) -> str | None:
        """The loss to judge by: that on held-out data if it has enough values to judge; in a table of one measure,
        that, whatever its name."""
        named = sorted(self.losses, key=lambda c: not c.lower().endswith("loss"))  # rather than loss/auxiliary
        ordered = list(dict.fromkeys([*(c for c in _LOSSES if c in self._frame), *named]))
        if not ordered:  # as TensorBoard exports one curve
            return next((c for c in self.columns if c.lower() == "value"), None)
        return next((c for c in ordered if np.isfinite(self.values(c)).sum() >= ENOUGH_ROWS), ordered[0])

    @property
    def loss(self) -> Array:
        """The loss to judge by, NaN where a row has none."""
        name = self.loss_name
        return np.full(len(self), np.nan) if name is None else self.values(name)

    @property
    def accuracy(self) -> Array | None:
        """On held-out data, if it was measured there."""
        name = next((c for c in _ACCURACIES if c in self._frame), None)
        return None if name is None else self.values(name)

    @property
    def rungs(self) -> Array:
        """KL of each truncated truth A*_{1:i} to the model, (rows, groups)."""
        return self._block(self.rung_names)

    @property
    def rung_names(self) -> list[str]:
        return _numbered(self.columns, "kl")

    @property
    def references(self) -> Array:
        """KL to the predictions of each run that it was compared with, (rows, runs)."""
        return self._block(_numbered(self.columns, "ref"))

    @property
    def contexts(self) -> dict[int, Array]:
        """KL to a model that sees so many tokens, the fewest first."""
        return {predictor(c)[1]: self.values(c) for c in self.context_names}

    @property
    def context_names(self) -> list[str]:
        return _numbered(self.columns, "context")

    @property
    def ladder_names(self) -> list[str]:
        """The columns about truths, contexts and groups, as they stand in the table."""
        groups = [m for m in self.measures if _GROUP.fullmatch(m)]
        mine = {*self.rung_names, *self.context_names, *self.head_names(*groups)}
        return [c for c in self.columns if c in mine or _ALIGNMENT.fullmatch(c)]

    # -- numbers of each head

    @property
    def measures(self) -> list[str]:
        """The measures of heads that the curve has."""
        return list(self._places)

    def head_names(self, *measures: str) -> list[str]:
        """The columns of these measures, as they stand in the table."""
        mine = {c for measure in measures for c in self._places.get(measure, {}).values()}
        return [c for c in self.columns if c in mine]

    def heads(self, measure: str) -> Array:
        """A measure of every head, (rows, layers, heads); NaN where a head has none."""
        places = self._known(measure)
        layers, heads = (1 + max(at) for at in zip(*places, strict=True))
        out = np.full((len(self), layers, heads), np.nan)
        for (layer, head), column in places.items():
            out[:, layer, head] = self.values(column)
        return out

    def flat(self, *measures: str) -> Array:
        """The heads of measures one beside the other, (rows, heads of all layers): those that there are."""
        columns = [c for measure in measures for c in self._known(measure).values()]
        return self._frame[columns].to_numpy(dtype=float)

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
        """<V_head, A_group> / |A_group|², (rows, heads, groups), of a model that shows its value matrices."""
        found = {c: f for c in self.columns if (f := _ALIGNMENT.fullmatch(c))}
        if not found:
            return None
        heads, groups = (max(int(f[i]) for f in found.values()) for i in (1, 2))
        out = np.full((len(self), heads + 1, groups), np.nan)
        for column, f in found.items():
            out[:, int(f[1]), int(f[2]) - 1] = self.values(column)
        return out

    def best(self, measure: str) -> Array:
        """The highest head of each row; NaN in a row that has none."""
        return self._frame[list(self._known(measure).values())].max(axis=1).to_numpy(dtype=float)

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
        """Heads by their value at the end, the highest first; as they stand where two are equal."""
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
        return self._frame[columns].to_numpy(dtype=float)

    # -- parts

    @property
    def last(self) -> Row:
        """The last row, without what it lacks."""
        return self._row(len(self) - 1)

    def at(self, step: float) -> Row:
        """The last row at a step or before."""
        known = np.flatnonzero(self.steps <= step)
        if not len(known):
            raise BadInput("step", step, f"at least {self.steps.min():g}, the first of the curve")
        return self._row(int(known[np.argmax(self.steps[known])]))

    def _row(self, i: int) -> Row:
        return {str(k): float(v) for k, v in self._frame.iloc[i].items() if np.isfinite(v)}

    def truncate(self, step: float) -> "Curve":
        """The rows up to a step: what was known then."""
        return self.rows(self.steps <= step)

    def rows(self, which: Any) -> "Curve":
        """Some of the rows: a mask, a slice or their numbers."""
        chosen = self._frame.iloc[which] if isinstance(which, slice) else self._frame[np.asarray(which)]
        return Curve(chosen)

    def sorted(self) -> "Curve":
        """In the order of steps."""
        return Curve(self._frame.sort_values(STEP))

    def complete(self, *measures: str) -> "Curve":
        """The rows that have all heads of these measures, with nothing but steps and these heads, as far as they have a
        number in any row: loggers write the loss more often than attention. No rows where a measure is missing."""
        kinds = [self._measured(measure) for measure in measures]
        names = [c for kind in kinds for c in kind]
        there = np.isfinite(self._block(names)).all(1) & all(kinds)
        return Curve(self._frame.loc[there, [STEP, *names]])

    def _measured(self, measure: str) -> list[str]:
        return [c for c in self._places.get(measure, {}).values() if np.isfinite(self.values(c)).any()]

    # -- to look at

    def plot(self, measure: str | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw the loss over steps, or every head of a measure, the best one in bold; on `ax` if it is given."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(5, 3.2), layout="constrained").subplots()
        if measure is None:
            ax.plot(self.steps, self.loss, color="#222222")
        else:
            for values in self.flat(measure).T:
                ax.plot(self.steps, values, color="#4477aa", lw=0.6, alpha=0.5)
            ax.plot(self.steps, self.best(measure), color="#4477aa", lw=1.8)
        ax.set(xlabel="step", ylabel=(self.loss_name or "loss") if measure is None else measure)
        return ax

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
        if name.startswith("_") or not hasattr(pd.DataFrame, name):
            raise AttributeError(f"Curve has no attribute {name!r}")
        self._was_a_table()
        return getattr(self._frame, name)

    def _was_a_table(self) -> None:
        message = "a curve is a Curve, no longer a pandas table; to_frame() gives that, and the next release needs it"
        warnings.warn(message, FutureWarning, stacklevel=3)


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """A table without its columns of text; those that are needed must be numbers."""
    text = [c for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
    if not text:
        return frame
    needed = [c for c in text if c == STEP or "loss" in c.lower() or place(c)]
    try:
        found = {c: pd.to_numeric(frame[c]) for c in needed}
    except (TypeError, ValueError) as e:
        raise BadInput("the curve", f"one with {e}", "made of numbers") from e
    return frame.drop(columns=[c for c in text if c not in needed]).assign(**found)
