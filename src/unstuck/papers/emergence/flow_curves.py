"""Figures 1a, 1b, 7 and 10: the reduced dynamics over time, for one size or several.

Sections 2.2, A.3.2 and A.4. A row says the flows, the times and columns of the table, the drawing, and the claims.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture
from numpy.typing import NDArray

from unstuck.columns import TEST_LOSS
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLACK, BLUE, ORANGE, legend_outside, panels, shades
from unstuck.theory import Flow, rate
from unstuck.theory.flow import Trajectory

Array = NDArray[np.float64]
TIME = "training time (steps × lr)"


@dataclass(frozen=True)
class FlowCurves:
    """Flows at some times, one under the other; `times` and `columns` are given the length of a flow's plateau too."""

    title: str
    flows: list[Flow]
    times: Callable[[Flow, float], Array]
    columns: Callable[[Flow, float, Trajectory], dict[str, Any]]
    draw: Callable[[pd.DataFrame], Picture]
    compare: Callable[[pd.DataFrame], list[Claim]]
    seconds: float = 0.1

    def plan(self, profile: Profile) -> list[Job]:
        return [Job("flow", len(self.flows), self.seconds)]

    def data(self, profile: Profile, progress: Progress) -> pd.DataFrame:
        parts = []
        for i, flow in enumerate(self.flows):
            end = flow.plateau().time or 0.0
            path = flow.trajectory(times=self.times(flow, end))
            parts.append(pd.DataFrame(self.columns(flow, end, path)))
            progress(i + 1, len(self.flows))
        return pd.concat(parts, ignore_index=True)


def _times(*spans: tuple[float, float, int]) -> Array:
    """Evenly from a time to another, so many; spans may overlap."""
    return np.unique(np.concatenate([np.linspace(*span) for span in spans]))


# -- Figure 1a: T = 512, several d


def _draw_losses(table: pd.DataFrame) -> Picture:
    picture, (ax,) = panels(width=5.6)
    for d, colour in shades(sorted(table["d"].unique())).items():
        curve = table[table["d"] == d]
        ax.plot(curve["t"], curve["loss"], color=colour, label=f"d = {d}")
    ax.axhline(0.1, color="#999999", lw=0.8, ls=":")
    ax.text(0.01, 0.104, "threshold 0.1", fontsize=7.5, color="#666666", ha="left", transform=ax.get_yaxis_transform())
    ax.set(xlabel=TIME, ylabel="loss", title="Reduced dynamics, T = 512", ylim=(0, 0.53))
    ax.set_xlim(0, 1.12 * table["plateau"].max())
    legend_outside(picture, ax)
    return picture


def _drop(table: pd.DataFrame) -> list[Claim]:
    """Worst over d: the loss half-way, and the share of the plateau in which the loss falls from 0.45 to 0.1."""
    halves, drops = [], []
    for _, c in table.groupby("d"):
        end = c["plateau"].iloc[0]
        halves.append(float(np.interp(end / 2, c["t"], c["loss"])))
        drops.append(1 - float(np.interp(-0.45, -c["loss"], c["t"])) / end)
    half, drop = min(halves), max(drops)
    text = f"half-way the loss is still {half:.3f} or more; from 0.45 to 0.1 takes at most {drop:.0%} of the time"
    return [Claim("plateau, then drop", text, "plateau, then sharp drop", bool(half > 0.48 and drop < 0.2))]


# -- Figure 1b: T = 512, d = 64, optima dashed

D = 64


def _draw_weight_and_attention(table: pd.DataFrame) -> Picture:
    picture, (ax,) = panels(width=5.0)
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    ax.plot(table["t"], table["w"], color=BLUE)
    right.plot(table["t"], table["alpha"], color=ORANGE)
    ax.axhline(math.sqrt(D), color=BLUE, ls="--", lw=1)
    right.axhline(1.0, color=ORANGE, ls="--", lw=1)
    ax.set(xlabel=TIME, title=f"T = 512, d = {D}; optima dashed", ylim=(0, 12.5), xlim=(0, None))
    right.set_ylim(0, 12.5 / 9.5)
    ax.set_ylabel("weight w along W*", color=BLUE)
    right.set_ylabel("attention α to the relevant token", color=ORANGE)
    end = table["plateau"].iloc[0]
    ax.axvline(end, color="#999999", lw=0.8, ls=":")
    ax.text(end * 0.985, 12.1, "loss 0.1", fontsize=8, color="#666666", ha="right", va="top")
    return picture


def _weight_first(table: pd.DataFrame) -> list[Claim]:
    end = table["plateau"].iloc[0]
    w = float(np.interp(0.1 * math.sqrt(D), table["w"], table["t"])) / end  # w rises up to here
    alpha = float(np.interp(0.1, table["alpha"], table["t"])) / end
    text = f"w is at a tenth of its optimum after {w:.0%} of the plateau, α after {alpha:.0%}"
    return [Claim("w moves before α", text, "feedforward learning precedes attention", w < alpha)]


# -- Figure 7: in units of 1/λ = sqrt(d) T the linear approximation is one curve

EARLY_D, EARLY_T = 512, [64, 256, 1024, 4096]
END = 1.35  # in units of 1/λ; the blow-up is at sqrt(π/2) = 1.2533, the plateau's end a little later
BLOW_UP = math.sqrt(math.pi / 2)
#: Label and upper limit of each panel, and the linear approximation.
EARLY: dict[str, tuple[str, float, Callable[[Array], Array]]] = {
    "w": ("weight w", 4.0, np.sinh),
    "delta_a": ("score gap Δa", 5.0, lambda x: np.cosh(x) - 1),
    "fallen": ("fall of the loss / (λ/2)", 20.0, lambda x: np.sinh(2 * x)),
}


def _early(flow: Flow, end: float, path: Trajectory) -> dict[str, Any]:
    fallen = (0.5 - path.loss) / (rate(flow) / 2)
    x = np.linspace(0, END, 271)
    return {"T": flow.T, "lambda_t": x, "w": path.w, "delta_a": path.delta_a, "fallen": fallen}


def _draw_early(table: pd.DataFrame) -> Picture:
    picture, axes = panels(3, width=3.7)
    x = np.linspace(0, END, 200)
    for ax, (name, (label, top, linear)) in zip(axes, EARLY.items(), strict=True):
        for length, colour in shades(EARLY_T).items():
            curve = table[table["T"] == length]
            ax.plot(curve["lambda_t"], curve[name], color=colour, label=f"T = {length}")
        ax.plot(x, linear(x), "--", color=BLACK, lw=1.3, label="linear approximation")
        ax.axvline(BLOW_UP, color="#999999", lw=0.8, ls=":")
        ax.set(xlabel="time in units of √d T", ylabel=label, ylim=(0, top), xlim=(0, END))
    axes[0].legend(loc="upper left")
    axes[1].text(1.235, 4.9, "blow-up √(π/2)", rotation=90, fontsize=8, color="#666666", ha="right", va="top")
    picture.suptitle(f"Early dynamics, d = {EARLY_D}", fontsize=10.5)
    return picture


def _linear(table: pd.DataFrame) -> list[Claim]:
    last = EARLY_T[-1]
    curve = table[(table["T"] == last) & (table["lambda_t"] > 0.05)]
    off = np.abs(curve["fallen"] / np.sinh(2 * curve["lambda_t"]) - 1)
    until = float(curve.loc[off > 0.1, "lambda_t"].min())
    share = until / BLOW_UP
    text = f"the fall of the loss is within 10% until λt = {until:.2f}, {share:.0%} of the plateau (T = {last})"
    why = "beyond it Δa runs ahead: attention is exponential in it"
    return [Claim("the linear approximation matches early", text, "matches the early dynamics", share > 0.2, why)]


# -- Figure 10: three variables, T = 512, d = 64; on the training distribution and on clean data

P = [0.0, 0.1, 0.2, 0.4, 0.8]


def _three_variables(flow: Flow, end: float, path: Trajectory) -> dict[str, Any]:
    if path.w_tilde is None:  # p = 0: every direction is like every other
        w = w_tilde = path.w / math.sqrt(D)
    else:
        w, w_tilde = path.w / math.sqrt(D - 1), path.w_tilde
    columns = {"loss": path.loss, TEST_LOSS: path.test_loss, "w": w, "w_tilde": w_tilde, "alpha": path.alpha}
    return {"p": flow.p, "t": path.t, "plateau": end, **columns}


def _draw_repetition(table: pd.DataFrame) -> Picture:
    picture, (left, middle, right) = panels(3, width=3.9)
    for p, colour in shades(P).items():
        c = table[table["p"] == p]
        left.plot(c["t"], c["loss"], color=colour, label=f"p = {p:g}")
        left.plot(c["t"], c[TEST_LOSS], color=colour, ls="--", lw=1.2)
        middle.plot(c["t"], c["w"], color=colour)
        middle.plot(c["t"], c["w_tilde"], color=colour, ls="--", lw=1.2)
        right.plot(c["t"], c["alpha"], color=colour)
    dashed = "loss: on clean data\nweights: $\\tilde{w}$, the\nfrequent direction"
    left.plot([], [], "--", color="#444444", lw=1.2, label=dashed)
    left.set(ylabel="loss", ylim=(0, 0.53))
    middle.set(ylabel="weights w/√(d-1) and $\\tilde{w}$, optimum 1", ylim=(0, None))
    right.set(ylabel="attention α to the relevant token", ylim=(0, 1))
    for ax in (left, middle, right):
        ax.set(xlabel=TIME, xlim=(0, 6500))
    legend_outside(picture, left)
    picture.suptitle(f"Cross-sample repetition, T = 512, d = {D}", fontsize=10.5)
    return picture


def _faster_with_p(table: pd.DataFrame) -> list[Claim]:
    ends = table.groupby("p")["plateau"].first()
    leads = []
    for p in P[1:]:
        c = table[table["p"] == p]
        leads.append(float(np.interp(0.3, c["w"], c["t"]) / np.interp(0.3, c["w_tilde"], c["t"])))
    slower = "too much of it slows the other directions: p = 0.8 takes longer than p = 0.4"
    return [
        Claim(
            "repetition speeds up emergence, also on clean data",
            f"plateaus {' / '.join(f'{ends[p]:.0f}' for p in P)} for p = {' / '.join(f'{p:g}' for p in P)}",
            "faster with p",
            bool((ends[P[:4]].diff().dropna() < 0).all()),
            slower if ends[0.8] > ends[0.4] else "",
        ),
        Claim(
            "the frequent direction learns first",
            f"w~ reaches 0.3 up to {max(leads):.1f} times sooner than the other directions",
            "w~ learns faster",
            min(leads) > 1,
        ),
    ]


FIGURES: dict[str, FlowCurves] = {
    "fig1a": FlowCurves(
        "Figure 1a: the reduced dynamics sit on a plateau, then drop",
        [Flow(512, d, kind="reduced") for d in (16, 32, 64, 128, 256)],
        lambda flow, end: _times((0, 1.6 * end, 300), (0.85 * end, 1.05 * end, 200)),
        lambda flow, end, path: {"d": flow.d, "t": path.t, "loss": path.loss, "plateau": end},
        _draw_losses,
        _drop,
    ),
    "fig1b": FlowCurves(
        "Figure 1b: weights begin to learn before attention does",
        [Flow(512, D, kind="reduced")],
        lambda flow, end: _times((0, 1.6 * end, 400), (0.85 * end, 1.05 * end, 400)),
        lambda flow, end, path: {"t": path.t, "w": path.w, "alpha": path.alpha, "plateau": end},
        _draw_weight_and_attention,
        _weight_first,
    ),
    "fig7": FlowCurves(
        "Figure 7: the early dynamics and their linear approximation",
        [Flow(T, EARLY_D, kind="reduced") for T in EARLY_T],
        lambda flow, end: np.linspace(0, END, 271) / rate(flow),
        _early,
        _draw_early,
        _linear,
    ),
    "fig10": FlowCurves(
        "Figure 10: with cross-sample repetition the frequent direction learns first and pulls attention along",
        [Flow(512, D, p=p, kind="reduced") for p in P],
        lambda flow, end: _times((0, 6500, 300), (0.6 * end, 1.1 * end, 250)),
        _three_variables,
        _draw_repetition,
        _faster_with_p,
        seconds=0.2,
    ),
}
