"""Pictures of a curve, a law, a forecast and a flow, and what a notebook shows of them.

The one place where the core draws; it takes numbers, and needs matplotlib only when something is drawn. The figures of
the papers are in `papers/`, those of the report in `view/`.
"""

import base64
import html
import io
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from unstuck.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
DARK, BLUE, ORANGE, GREY = "#222222", "#4477aa", "#cc5500", "#888888"


@cache
def _picture() -> "type[Figure]":
    """A figure that a notebook shows whatever backend is active."""
    from matplotlib.figure import Figure  # optional

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    return Picture


def axes(what: str, ax: "Axes | None" = None) -> "Axes":
    """Where to draw: the given axes, or those of a new figure. `what` needs the extra `papers`."""
    if ax is not None:
        return ax
    require("papers", what, "matplotlib")
    return _picture()(figsize=(5, 3.2), layout="constrained").subplots()


def figure_of(ax: "Axes") -> "Figure":
    return cast("Figure", ax.get_figure())


def draw_loss(ax: "Axes", steps: Array, loss: Array, name: str) -> None:
    ax.plot(steps, loss, color=DARK)
    ax.set(xlabel="step", ylabel=name)


def draw_heads(ax: "Axes", steps: Array, heads: Array, best: Array, name: str) -> None:
    """Every head, (rows, heads), and the best one in bold."""
    for values in heads.T:
        ax.plot(steps, values, color=BLUE, lw=0.6, alpha=0.5)
    ax.plot(steps, best, color=BLUE, lw=1.8)
    ax.set(xlabel="step", ylabel=name)


def draw_law(ax: "Axes", fitted: Array, measured: Array, censored: NDArray[np.bool_], title: str) -> None:
    """Measured plateaus against those of a law; for a run that did not emerge, its last step, with an arrowhead."""
    ends = [min(fitted.min(), measured.min()), max(fitted.max(), measured.max())]
    ax.plot(ends, ends, color=GREY, lw=0.8)
    ax.plot(fitted[~censored], measured[~censored], "o", color=BLUE, ms=4, label="emerged")
    if censored.any():
        ax.plot(fitted[censored], measured[censored], "^", color=ORANGE, ms=5, mfc="none", label="longer than this")
        ax.legend(frameon=False)
    ax.set(xscale="log", yscale="log", xlabel="plateau by the law (steps)", ylabel="measured (steps)", title=title)


def draw_probability(ax: "Axes", steps: Array, probability: Array, event: str) -> None:
    """The probability that an event has come by a step."""
    ax.plot(steps, probability, color=BLUE, lw=1.8)
    ax.set(xlabel="step", ylabel=f"probability of the {event} by then", ylim=(0, 1))


def mark_forecast(ax: "Axes", now: float, step: float | None, interval: tuple[float, float] | None) -> None:
    """The present step, and the predicted one with its interval."""
    ax.axvline(now, color=GREY, ls=":", lw=1)
    if interval is not None:
        ax.axvspan(*interval, color=ORANGE, alpha=0.15, lw=0)
    if step is not None:
        ax.axvline(step, color=ORANGE, lw=1)


def draw_flow(ax: "Axes", t: Array, loss: Array, attention: Array, plateau: float | None) -> None:
    """Loss and attention over training time, and the end of the plateau."""
    ax.plot(t, loss, color=DARK)
    ax.set(xlabel="training time (steps × learning rate)", ylabel="test loss", ylim=(0, None))
    right = ax.twinx()
    right.plot(t, attention, color=BLUE)
    right.set(ylim=(0, 1.02))
    right.set_ylabel("attention to the relevant tokens", color=BLUE)
    if plateau is not None:
        ax.axvline(plateau, color=ORANGE, lw=1)


def as_html(sentence: str, rows: Mapping[str, Any], plot: "Callable[[], Figure] | None") -> str:
    """What a notebook shows: a sentence, a small table and, if matplotlib is installed, a picture."""
    left = 'style="text-align: left"'
    cells = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    picture = ""
    if plot is not None and find_spec("matplotlib") is not None:
        png = cast(Any, plot())._repr_png_()
        picture = f'<img alt="" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    return f"<p>{html.escape(sentence)}</p><table>{cells}</table>{picture}"
