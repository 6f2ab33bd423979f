"""What the Transformer figures on regression share: grids by profile, claims of laws."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.plateaus import exponent_text

SEEDS: dict[Profile, list[int]] = {"quick": [0], "cpu": [0, 1, 2], "paper": [0, 1, 2, 3, 4]}
PAPER_T = PAPER_D = [16, 32, 64, 128, 256]

NARROW = 0.2  # half of the width of an interval that is narrow enough to tell
PAPER_GRID = "the paper's grid, T up to 256, would tell"  # exponents rise along ours


def left_runs(profile: Profile) -> list[TieredRun]:
    """Figure 3 left: plateau against d for several T, no repetition."""
    seeds = SEEDS[profile]
    if profile == "quick":
        return grid("regression", 1, seeds, task__T=[16, 32], task__d=[8, 12])
    if profile == "paper":
        return grid("regression", 1, seeds, task__T=PAPER_T, task__d=[8, *PAPER_D])
    runs = grid("regression", 1, seeds, task__T=[16, 32, 64], task__d=[8, 16, 32, 64])
    return [*runs, *long_runs(), *grid("regression", 1, seeds[1:], task__T=[128], task__d=[8, 16, 32])]


def long_runs() -> list[TieredRun]:
    """Runs that go on after emergence, for the whole curves of Figure 11."""
    return grid("regression", 1, [0], {"train.after": 400}, task__T=[128], task__d=[8, 16, 32])


def middle_runs(profile: Profile) -> list[TieredRun]:
    """Figure 3 middle: plateau against d for several B."""
    seeds = SEEDS[profile]
    if profile == "quick":
        return grid("regression", 1, seeds, {"task.T": 32}, task__B=[1, 4], task__d=[8, 12])
    if profile == "paper":
        return grid("regression", 1, seeds, {"task.T": 256}, task__B=[1, 2, 4, 8, 16], task__d=[8, *PAPER_D])
    return grid("regression", 1, seeds, {"task.T": 64}, task__B=[1, 2, 4, 8], task__d=[8, 16, 32, 64])


def each_once(runs: Iterable[TieredRun]) -> list[TieredRun]:
    """Runs of several grids that overlap."""
    return list({run.spec.run_id: run for run in runs}.values())


def paper_law(T: Any, d: Any) -> Any:
    """The paper's plateau without repetition (Figure 3)."""
    return 0.76 * d**1.29 * T**0.80


def of_paper_sizes(part: pd.DataFrame) -> pd.DataFrame:
    """The runs with the paper's own d, from 16 on, once there are three of them; until then all."""
    large = part[part["d"] >= PAPER_D[0]]
    return large if large["d"].nunique() > 2 else part


def law_claims(
    law: PowerLaw | None, paper: dict[str, float], *, decides: str, where: str = "", r2: float | None = None
) -> list[Claim]:
    """Exponents with their 95% intervals beside the paper's. One agrees when the paper's lies inside ours, and ours is
    narrow enough to tell: the less is known, the more would agree otherwise. `decides` is the experiment that would
    decide where one differs."""
    if law is None:
        return [Claim(f"law{where}", "too few runs yet")]
    claims = []
    for term, expected in paper.items():
        low, high = law.intervals[term]
        inside, wide = bool(low <= expected <= high), high - low > 2 * NARROW
        agrees = None if inside and wide else inside
        note = {None: "too wide to tell", True: "", False: decides}[agrees]
        claims.append(Claim(f"exponent of {term}{where}", exponent_text(law, term), f"{expected:.2f}", agrees, note))
    fits = None if r2 is None else bool(law.r2 >= r2 - 0.025)
    claims.append(Claim(f"R²{where}", law.r2, r2, fits, decides if fits is False else ""))
    claims.append(Claim(f"runs fitted{where}", f"{law.n} emerged, {law.censored} censored"))
    return claims


def cell_ratios(slow: pd.DataFrame, fast: pd.DataFrame) -> tuple[pd.Series, int]:
    """How many times as long the plateaus of one table are as those of another, for each T and d, in geometric means
    over seeds; and how many cells are left out since a run of them did not emerge."""
    means = []
    for table in (slow, fast):
        cells = table.groupby(["T", "d"])
        log = cells["plateau_steps"].agg(lambda steps: np.log(steps).mean())
        means.append(log[cells["status"].agg(lambda status: (status == "emerged").all())])
    both = (means[0] - means[1]).dropna()
    known = set(zip(slow["T"], slow["d"], strict=True)) & set(zip(fast["T"], fast["d"], strict=True))
    return pd.Series(np.exp(both)), len(known) - len(both)


def ratio_text(ratio: pd.Series, left_out: int, digits: int = 2) -> str:
    """`1.30 times (from 1.10 to 1.60, 9 sizes)`, with those left out.

    Examples:
        >>> ratio_text(pd.Series([1.0, 4.0]), 1)
        '2.00 times (from 1.00 to 4.00, 2 sizes; 1 left out, where a run did not emerge)'
    """
    mean = np.exp(np.log(ratio).mean())
    low, high = ratio.min(), ratio.max()
    missing = f"; {left_out} left out, where a run did not emerge" if left_out else ""
    return f"{mean:.{digits}f} times (from {low:.{digits}f} to {high:.{digits}f}, {len(ratio)} sizes{missing})"


def local_exponents(table: pd.DataFrame, x: str, sizes: Sequence[str] = ("T", "d", "B"), where: str = "") -> Claim:
    """The exponent between neighbouring sizes alone, mean over the rest of the grid: does one power law hold?"""
    emerged = table[table["status"] == "emerged"]
    others = [c for c in sizes if c != x]
    means = emerged.assign(log=np.log(emerged["plateau_steps"])).pivot_table("log", others, x)
    values = sorted(means.columns)
    steps = []
    for a, b in itertools.pairwise(values):
        slope = ((means[b] - means[a]) / np.log(b / a)).dropna()
        if len(slope):
            steps.append(f"{slope.mean():.2f} from {a:g} to {b:g}")
    text = ", ".join(steps) or "too few runs yet"
    return Claim(f"exponent of {x} between neighbouring sizes{where}", text)


def spread(table: pd.DataFrame, by: Sequence[str]) -> float:
    """Median over cells of the standard deviation of log plateau over seeds."""
    emerged = table[table["status"] == "emerged"]
    groups: Any = np.log(emerged["plateau_steps"]).groupby([emerged[b] for b in by])
    return float(groups.std().median())
