"""One look for all figures: fonts, colours safe for colour-blind readers, where numbers go."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

# Okabe and Ito's palette, for things that differ in kind.
BLUE, ORANGE, GREEN, RED, PURPLE, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#222222",
)  # fmt: skip
PAPER_GREY = "#666666"

_RC: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.8,
    "pdf.fonttype": 42,  # editable text
    "savefig.dpi": 200,
}


def look() -> AbstractContextManager[None]:
    """The rc settings in which every figure is drawn and saved."""
    return mpl.rc_context(_RC)


def panels(columns: int = 1, rows: int = 1, *, width: float = 4.4, height: float = 3.5) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, and row by row."""
    picture = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return picture, picture.subplots(rows, columns, squeeze=False).ravel().tolist()


def legend_outside(picture: Figure, axes: Axes, *, loc: Any = "outside right center", **options: Any) -> None:
    """The legend of one panel beside or below the figure, clear of all data."""
    handles, labels = axes.get_legend_handles_labels()
    picture.legend(handles, labels, loc=loc, **options)


def shades(values: Sequence[object]) -> dict[Any, Any]:
    """A colour for each of an ordered set of values, dark to light; monotone in lightness, so it survives grey."""
    colours = mpl.colormaps["viridis"]
    top = max(len(values) - 1, 1)
    return {v: colours(0.05 + 0.83 * i / top) for i, v in enumerate(values)}


def note(axes: Axes, text: str, *, at: tuple[float, float] = (0.03, 0.97), ha: Any = "left", va: Any = "top") -> None:
    """Numbers in a panel: the paper's and ours."""
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "#BBBBBB", "alpha": 0.9}
    axes.text(*at, text, transform=axes.transAxes, ha=ha, va=va, fontsize=8, bbox=box, linespacing=1.35)


def plateau_axes(axes: Axes, x: str, ticks: Sequence[float], y: str = "plateau length (steps × lr)") -> None:
    """Log-log axes for a plateau length, with the sizes that were run written on the x axis; call it after plotting."""
    axes.set(xscale="log", xlabel=x, ylabel=y)
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    log_steps(axes)


def log_steps(axes: Axes, within: float = 30) -> None:
    """A logarithmic y axis, numbered between powers of ten if it spans less than `within`; call it after plotting."""
    axes.set_yscale("log")
    axes.minorticks_off()
    low, high = axes.get_ylim()
    if high / low < within:  # powers of ten alone would leave the axis bare
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(which="major", color="#E6E6E6", lw=0.6)
    axes.set_axisbelow(True)
