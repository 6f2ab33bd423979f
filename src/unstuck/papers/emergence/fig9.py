"""Figure 9: SGD on the real toy model follows the reduced flow.

A.3.4. T = d = 256, W and W* drawn from N(0, 1/d), batch 32, learning rate 1, 5 seeds: loss, attention, weight,
against the flow of Eq. 13-14. Beside it the same seeds from W = 0, which tells sampling noise from the effect of
W's start.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLACK, BLUE, ORANGE, legend_outside, note, panels
from unstuck.theory import Flow
from unstuck.theory.crossing import log_crossing

T = D = 256
SEEDS, STEPS, BATCH, LR = [0, 1, 2, 3, 4], 7000, 32, 1.0
STARTS = {"sgd": "SGD, W ~ N(0, 1/d)", "sgd-zero": "SGD, W = 0"}
COLOURS = {"sgd": ORANGE, "sgd-zero": BLUE}


def _seeds(profile: Profile) -> list[int]:
    return SEEDS[:2] if profile == "quick" else SEEDS


def plan(profile: Profile) -> list[Job]:
    runs = len(STARTS) * len(_seeds(profile))
    return [Job("SGD run", runs, runs * STEPS * 0.6e-3, runs * STEPS)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    import torch

    from unstuck.tasks.single_location import SingleLocation
    from unstuck.training.toy_sgd import train

    torch.set_num_threads(1)
    path = Flow(T, D, kind="reduced").trajectory(times=np.arange(0.0, STEPS + 1, 20))
    parts = [
        pd.DataFrame({"run": "theory", "seed": -1, "step": path.t, "loss": path.loss, "alpha": path.alpha, "w": path.w})
    ]
    for i, run in enumerate(STARTS):
        curves = train(
            SingleLocation.for_toy(T, D),
            _seeds(profile),
            STEPS,
            batch=BATCH,
            lr=LR,
            zero_start=run == "sgd-zero",
            progress=lambda step, i=i: progress(i * STEPS + step, len(STARTS) * STEPS),  # type: ignore[misc]
        )
        parts.append(curves.assign(run=run))
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(3, width=3.9)
    labels = {"loss": "test loss", "alpha": "attention α to the relevant token", "w": "weight w along W*"}
    for ax, (column, label) in zip(axes, labels.items(), strict=True):
        for run, name in STARTS.items():
            for i, (_, curve) in enumerate(table[table["run"] == run].groupby("seed")):
                ax.plot(
                    curve["step"], curve[column], color=COLOURS[run], lw=1, alpha=0.85, label=name if i == 0 else None
                )
        theory = table[table["run"] == "theory"]
        ax.plot(theory["step"], theory[column], "--", color=BLACK, lw=1.6, label="theory")
        ax.set(xlabel="step", ylabel=label, xlim=(3500, STEPS))
    legend_outside(picture, axes[0], loc="outside lower center", ncols=3)
    axes[0].set_ylim(0, 0.53)
    found = plateaus(table)
    sgd, zero = found["sgd"], found["sgd-zero"]
    note(
        axes[1],
        f"plateau\ntheory {found['theory'][0]:.0f}\nSGD {min(sgd):.0f} to {max(sgd):.0f}\n"
        f"from W = 0: {np.mean(zero):.0f}",
    )
    picture.suptitle(f"Toy model, T = d = {T}, batch {BATCH}, lr {LR:g}, {len(sgd)} seeds", fontsize=10.5)
    return picture


def plateaus(table: pd.DataFrame) -> dict[str, list[float]]:
    """Steps to loss 0.1 of every curve, by log-linear interpolation."""
    out: dict[str, list[float]] = {}
    for (run, _), curve in table.groupby(["run", "seed"]):
        step = log_crossing(curve["step"], curve["loss"], 0.1)
        if step is None:
            raise RuntimeError(f"a {run} curve never reaches loss 0.1")
        out.setdefault(str(run), []).append(step)
    return out


def compare(table: pd.DataFrame) -> list[Claim]:
    found = plateaus(table)
    theory = found["theory"][0]
    sgd, zero = np.array(found["sgd"]), np.array(found["sgd-zero"])
    return [
        Claim(
            "SGD follows the reduced flow",
            f"SGD {sgd.min():.0f} to {sgd.max():.0f} steps (mean {sgd.mean():.0f}), theory {theory:.0f}: "
            f"{sgd.mean() / theory - 1:+.0%}",
            "quite accurately",
            bool(abs(sgd.mean() / theory - 1) <= 0.15),
            "counted as accurate when the mean is within 15%; W's random start decays slowly, see the next row",
        ),
        Claim(
            "the same from W = 0",
            f"{zero.min():.0f} to {zero.max():.0f} steps, {zero.mean() / theory - 1:+.1%}",
            note="the same batches without W's random start",
        ),
    ]
