"""What the figures cost, as `costs.py` has computed it: a table, read without the libraries that runs need."""

import csv
import io
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from .catalogue import Profile

FILE = Path(__file__).with_name("costs.csv")
ALL = "all trained runs, each once"


class CostRow(NamedTuple):
    figure: str
    profile: Profile
    runs: int  # or what a figure of theory computes
    steps: int
    flops: float
    cpu_hours: float
    gpu_hours: float

    @property
    def is_trained(self) -> bool:
        """Are its runs trained ones? Theory counts no operations."""
        return self.flops > 0

    def as_dict(self) -> dict[str, Any]:
        """For the tables of `unstuck figures --cost`, which are of one profile."""
        return {name: value for name, value in self._asdict().items() if name != "profile"}


@cache
def stored_costs() -> dict[tuple[str, Profile], CostRow]:
    with FILE.open(newline="", encoding="utf-8") as file:
        rows = [_parsed(row) for row in csv.DictReader(file)]
    return {(row.figure, row.profile): row for row in rows}


def cost_of(figure: str, profile: Profile) -> CostRow:
    """What a figure costs; one that is not in the table, such as another package's, is computed."""
    stored = stored_costs().get((figure, profile))
    if stored is not None:
        return stored
    from .costs import figure_cost  # with PyTorch

    return figure_cost(figure, profile)


def _parsed(row: dict[str, str]) -> CostRow:
    profile, hours = cast(Profile, row["profile"]), (float(row["cpu_hours"]), float(row["gpu_hours"]))
    return CostRow(row["figure"], profile, int(row["runs"]), int(row["steps"]), float(row["flops"]), *hours)


def as_csv(rows: Iterable[CostRow]) -> str:
    """The text of the table, to ten digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CostRow._fields)
    writer.writerows([f"{x:.10g}" if isinstance(x, float) else x for x in row] for row in rows)
    return text.getvalue()
