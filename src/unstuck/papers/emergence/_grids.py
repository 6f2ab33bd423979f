"""Plateau lengths over the grids of Figures 1c and 2, as the tables that laws are fitted to."""

import itertools
from collections.abc import Iterable

import pandas as pd

from unstuck.papers.figure import Progress
from unstuck.theory import Flow
from unstuck.theory.setting import Kind

POWERS_OF_TWO_D = [16, 32, 64, 128, 256, 512]


def plateau_table(
    progress: Progress,
    *,
    T: Iterable[int],
    d: Iterable[int],
    B: Iterable[int] = (1,),
    p: Iterable[float] = (0.0,),
    kind: Kind = "reduced",
) -> pd.DataFrame:
    """One row for each T, d, B, p: the simulated plateau at loss 0.1."""
    cells = list(itertools.product(T, d, B, p))
    rows = []
    for i, cell in enumerate(cells):
        rows.append((*cell, Flow(*cell, kind=kind).plateau().time))
        progress(i + 1, len(cells))
    return pd.DataFrame(rows, columns=["T", "d", "B", "p", "plateau_steps"])


def settings(table: pd.DataFrame, kind: Kind = "reduced") -> list[Flow]:
    """The flow of each row, for closed forms beside the simulations."""
    rows = table[["T", "d", "B", "p"]].itertuples(index=False, name=None)
    return [Flow(int(T), int(d), int(B), float(p), kind) for T, d, B, p in rows]
