"""Rows of plain values, a column at a time: the distinct values of a column as JSON, and for each row which one it has.

The runs of a store share most of their settings, so that a hundred thousand rows are a few thousand values. The table
is the one that `pd.DataFrame(rows)` makes, with the same types and the same order of columns.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Codes = NDArray[np.int32]
Places = NDArray[np.int64] | NDArray[np.bool_]

_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True)
class Column:
    """Distinct values as JSON, and the place of each row's value among them; -1 where a row has none."""

    codes: Codes
    texts: Sequence[str]

    @classmethod
    def of(cls, texts: Sequence[str | None]) -> "Column":
        places: dict[str, int] = {}
        codes = [-1 if text is None else places.setdefault(text, len(places)) for text in texts]
        return cls(np.array(codes, np.int32), list(places))

    def select(self, rows: Places) -> "Column":
        """The values of some rows, in that order."""
        codes = self.codes[rows]
        used = np.bincount(codes + 1, minlength=len(self.texts) + 1)[1:] > 0
        if used.all():
            return Column(codes, self.texts)
        new = np.append(np.cumsum(used, dtype=np.int32) - 1, np.int32(-1))  # a row without a value finds the last one
        return Column(new[codes], [text for text, kept in zip(self.texts, used, strict=True) if kept])

    def join(self, other: "Column") -> "Column":
        """The rows of both, one after the other."""
        places = {text: place for place, text in enumerate(self.texts)}
        new = [places.setdefault(text, len(places)) for text in other.texts]
        codes = np.array([*new, -1], np.int32)[other.codes]
        return Column(np.concatenate([self.codes, codes]), list(places))

    def replace(self, old: str, new: str, rows: Places) -> "Column":
        """With one value for another in some rows."""
        if old not in self.texts:
            return self
        texts = list(self.texts) if new in self.texts else [*self.texts, new]
        codes = self.codes.copy()
        codes[rows] = np.where(codes[rows] == texts.index(old), texts.index(new), codes[rows])
        return Column(codes, texts).select(np.arange(len(codes)))

    def rows_with(self, text: str) -> NDArray[np.int64]:
        return np.flatnonzero(self.codes == self.texts.index(text)) if text in self.texts else np.array([], np.int64)

    def distinct(self) -> list[Any]:
        """The distinct values; as many as there are texts."""
        return list(json.loads(f"[{','.join(self.texts)}]"))

    def values(self) -> list[Any]:
        """The value of each row; None where it has none."""
        values = [*self.distinct(), None]  # where the codes' -1 finds it
        return [values[code] for code in self.codes.tolist()]

    def array(self) -> Any:
        """The values, with the type that pandas finds for them."""
        import pandas as pd  # the table that is printed does without

        values = self.distinct()
        if (self.codes < 0).any():
            values.append(np.nan)  # where the codes' -1 finds it
        return pd.Series(values).array.take(self.codes)


@dataclass(frozen=True)
class Cells:
    """Rows of plain values; `keys` has the names of each row's columns in their order."""

    keys: Column
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.keys.codes)

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> "Cells":
        keys = Column.of([_encode(list(row)) for row in rows])
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {n: Column.of([_encode(row[n]) if n in row else None for row in rows]) for n in names}
        return cls(keys, columns)

    def select(self, rows: Places) -> "Cells":
        columns = ((name, column.select(rows)) for name, column in self.columns.items())
        return Cells(self.keys.select(rows), {name: column for name, column in columns if column.texts})

    def join(self, other: "Cells") -> "Cells":
        def whole(cells: "Cells", name: str) -> Column:
            return cells.columns.get(name) or Column(np.full(len(cells), -1, np.int32), [])

        columns = {name: whole(self, name).join(whole(other, name)) for name in {**self.columns, **other.columns}}
        return Cells(self.keys.join(other.keys), columns)

    def row(self, place: int) -> dict[str, str]:
        """The values of a row, as JSON."""
        codes = ((name, column, int(column.codes[place])) for name, column in self.columns.items())
        return {name: column.texts[code] for name, column, code in codes if code >= 0}

    def assign(self, name: str, column: Column) -> "Cells":
        return Cells(self.keys, {**self.columns, name: column})

    def frame(self) -> "pd.DataFrame":
        """The same as `pd.DataFrame(rows)`."""
        import pandas as pd

        return pd.DataFrame({name: self.columns[name].array() for name in self.names()}, copy=False)

    def names(self) -> Iterable[str]:
        """The names of the columns in the order in which rows first have them."""
        kinds, first = np.unique(self.keys.codes, return_index=True)
        return dict.fromkeys(name for kind in kinds[np.argsort(first)] for name in json.loads(self.keys.texts[kind]))
