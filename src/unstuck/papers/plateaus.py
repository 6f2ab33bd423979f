"""Plateaus of trained runs against a size: the plot, with the runs that did not emerge, and the law in words."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unstuck.laws import PowerLaw, fit_power_law

from .style import PAPER_GREY, plateau_axes, shades

LABELS = {"d": "dimension d", "lr": "learning rate", "pairs": "pairs in the context", "context": "context (tokens)"}


def fit_or_none(table: pd.DataFrame, formula: str) -> PowerLaw | None:
    """A law where enough runs are there to have one."""
    try:
        return fit_power_law(table, formula)
    except ValueError:
        return None


def plot_runs(
    ax: Axes, x: Any, rows: pd.DataFrame, colour: Any, label: str | None, y: str = "plateau_steps", **style: Any
) -> None:
    """A dot for each run that emerged, and an open triangle at its last step for each that did not."""
    x, there = np.asarray(x), (rows["status"] == "emerged").to_numpy()
    ends = rows["steps"] if y == "plateau_steps" else rows[y]
    size = style.pop("ms", 5)
    ax.plot(x[there], rows[y][there], "o", ms=size, color=colour, label=label, **style)
    ax.plot(x[~there], ends[~there], "^", ms=size + 1, color=colour, mfc="none")


def explain_triangles(ax: Axes, rows: pd.DataFrame) -> None:
    """An entry of the legend, where a run did not emerge."""
    if (rows["status"] != "emerged").any():
        ax.plot([], [], "^", ms=6, color=PAPER_GREY, mfc="none", label="not by its last step")


def plot_plateaus(
    ax: Axes,
    table: pd.DataFrame,
    x: str,
    by: str,
    law: PowerLaw | None = None,
    y: str = "plateau (steps to test loss 0.1)",
) -> None:
    """Every run over `x`, coloured by the value of `by`, and the law a line for each."""
    for value, colour in shades(sorted(table[by].unique())).items():
        rows = table[table[by] == value].sort_values(x)
        name = value if isinstance(value, str) else f"{value} tokens" if by == "tokens" else f"{by} = {value:g}"
        apart = 1.02 ** (rows["seed"] - 0.5) if x == "pairs" else 1  # runs that took as long are all seen
        plot_runs(ax, rows[x] * apart, rows, colour, name, ms=4, alpha=0.8)
        if law is not None:
            line = rows.drop_duplicates(x)
            ax.plot(line[x], law.predict(line), "-", lw=1.2, color=colour)
    explain_triangles(ax, table)
    plateau_axes(ax, LABELS.get(x, x), sorted(table[x].unique()), y)


def law_text(law: PowerLaw | None, names: Mapping[str, str] = MappingProxyType({"T/B": "(T/B)"})) -> str:
    """The law as a line of a panel's note; `names` are those of terms that are written otherwise there."""
    if law is None:
        return "too few runs for a law"
    factors = " ".join(f"${names.get(term, term)}^{{{x:.2f}}}$" for term, x in law.exponents.items())
    return f"{law.constant:.2f} {factors}, R² = {law.r2:.3f}"


def exponent_text(law: PowerLaw, term: str) -> str:
    """`1.29 (1.20 to 1.38)`: an exponent with its 95% interval."""
    low, high = law.intervals[term]
    return f"{law.exponents[term]:.2f} ({low:.2f} to {high:.2f})"
