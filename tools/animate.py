"""The moving picture of README: a stored run as it was forecast while it trained, into results/forecast.gif.

    python tools/animate.py [RUN_ID]

Above the loss, below every head's attention to the relevant token, up to the present step; shaded, the steps between
which the plateau is expected to end. The forecasts are those of a survival model that was fitted without any run of
this run's sizes.
"""

import sys
from io import BytesIO

import numpy as np
from calibrate import ROOT, training_runs
from matplotlib.axes import Axes
from PIL import Image

from unstuck.curve import Curve
from unstuck.forecast import ExitRule, Forecast, Forecaster, Outcome
from unstuck.forecast.fitting import fit_both
from unstuck.forecast.runs import MeasuredRun, moments_table
from unstuck.papers.style import BLACK, BLUE, ORANGE, look, panels

RUN = "f4ccb0e4812a3497"  # regression, T = 64, d = 32: a run of the middle of the grid of Figure 3
FRAMES, LAST_FRAMES = 45, 12  # the last picture stands for so many frames
MILLISECONDS, DPI = 110, 100


def forecaster(runs: list[MeasuredRun], size: str) -> Forecaster:
    """Fitted without runs of a size."""
    others = moments_table([run for run in runs if run.size != size])
    return Forecaster(models={"attention": fit_both(others)}, task="regression")


def draw_loss(axes: Axes, curve: Curve, said: Forecast, end: float | None) -> None:
    axes.plot(curve.steps, curve.loss, color=BLUE)
    axes.set(ylabel="loss", ylim=(0, 1.6 * float(np.median(curve.loss))))  # the first rows are far above
    if end is not None and said.now >= end:
        axes.axvline(end, color=BLACK, ls="--", lw=1.2)
        text = f"step {said.now:,.0f}: left its plateau at step {end:,.0f}"
    elif said.outcome is Outcome.EMERGES and (zone := said.interval()) is not None:
        axes.axvspan(*zone, color=ORANGE, alpha=0.3, lw=0)
        axes.axvline(said.step or 0.0, color=ORANGE, lw=1.4)
        text = f"step {said.now:,.0f}: exit expected at step {said.step:,.0f} ({zone[0]:,.0f} to {zone[1]:,.0f})"
    else:
        text = f"step {said.now:,.0f}: no end can be stated yet"
    axes.set_title(text, loc="left", fontfamily="monospace")


def draw_attention(axes: Axes, curve: Curve, said: Forecast) -> None:
    """Every head's attention over that at the start; orange, the head that the forecast rests on."""
    heads = curve.flat("attention")
    axes.plot(curve.steps, heads / heads[0], color="#777777", lw=1)
    if said.notes.head is not None and said.outcome is Outcome.EMERGES:
        mine = curve.head(*said.notes.head)
        axes.plot(curve.steps, mine / mine[0], color=ORANGE)
    axes.set(ylabel="attention to the\nrelevant token,\ntimes the start", xlabel="step", yscale="log", ylim=(0.7, 90))
    axes.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])


def frame(curve: Curve, now: float, forecasts: Forecaster, end: float | None) -> Image.Image:
    seen = curve.truncate(now)
    with look():
        picture, (above, below) = panels(rows=2, width=7.2, height=2.1)
        said = forecasts.predict(seen)
        draw_loss(above, seen, said, end)
        draw_attention(below, seen, said)
        for axes in (above, below):
            axes.set_xlim(0, float(curve.steps[-1]))
        above.set_xticklabels([])
        drawn = BytesIO()
        picture.savefig(drawn, dpi=DPI)
    return Image.open(drawn).convert("P", palette=Image.Palette.ADAPTIVE, colors=48)


def main() -> int:
    run_id = sys.argv[1] if len(sys.argv) > 1 else RUN
    runs = training_runs()
    mine = next(run for run in runs if run.run_id == run_id)
    forecasts, exits = forecaster(runs, mine.size), ExitRule().exits(mine.curve)
    last = mine.curve.steps[-1]
    steps = np.linspace(0.05 * last, last, FRAMES)
    shown = [frame(mine.curve, step, forecasts, exits[0] if exits else None) for step in steps]
    shown += [shown[-1]] * LAST_FRAMES
    out = ROOT / "results" / "forecast.gif"
    shown[0].save(out, save_all=True, append_images=shown[1:], duration=MILLISECONDS, loop=0, optimize=True)
    print(f"{out.relative_to(ROOT)}: {out.stat().st_size / 1e6:.2f} MB, {len(shown)} frames")
    return 0


if __name__ == "__main__":
    sys.exit(main())
