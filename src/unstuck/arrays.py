"""Tables of numbers as arrays by name: what a curve is made of where nobody asks for a pandas table."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, NDArray[Any]]  # numbers of any kind, as many in each column
KINDS = "fiub"  # of NumPy's types: what counts as a number


def numeric(values: list[Any]) -> NDArray[Any]:
    """Numbers as an array, of whole ones if all are; None is NaN.

    Examples:
        >>> numeric([1, 2]), numeric([1, None])
        (array([1, 2]), array([ 1., nan]))
    """
    array = np.array(values)
    return array if array.dtype.kind in KINDS else np.array(values, dtype=float)


def columns_of(frame: "pd.DataFrame") -> Columns:
    """The columns of a pandas table of numbers; nullable types become floats."""
    return {str(name): _array(column) for name, column in frame.items()}


def _array(column: "pd.Series") -> NDArray[Any]:
    array = column.to_numpy()
    return array if array.dtype.kind in KINDS else column.to_numpy(dtype=float, na_value=np.nan)
