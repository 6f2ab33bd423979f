"""Figure 8: the late phase: w follows its equilibrium, and the loss flattens along Δa.

A.3.3. Left: w_inf(α) for several T, d = 64. Middle: w and w_inf along the flow, T = 512, d = 64. Right: the
smallest and largest eigenvalue of the Hessian along the same flow, with the Hessian as corrected (errata 7 and 8).
"""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLUE, ORANGE, RED, panels, shades
from unstuck.theory import Flow, TwoVariableLoss

D, T_LEFT, T_FLOW = 64, [64, 256, 1024, 4096], 512


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", 1, 0.2)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    parts = []
    for length in T_LEFT:
        alpha = np.geomspace(1 / length, 1, 200)
        w_inf = TwoVariableLoss(length, D).w_inf(alpha)
        parts.append(pd.DataFrame({"part": "equilibrium", "T": length, "alpha": alpha, "w_inf": w_inf}))
    flow = Flow(T_FLOW, D, kind="reduced")
    loss = TwoVariableLoss(T_FLOW, D)
    end = flow.plateau().time or 0.0
    path = flow.trajectory(
        times=np.concatenate(
            [
                [0.0],
                np.geomspace(end / 300, 0.8 * end, 150),
                np.linspace(0.8 * end, 1.2 * end, 400),
                np.geomspace(1.21 * end, 100 * end, 150),
            ]
        )
    )
    eigen = np.linalg.eigvalsh(loss.hessian(path.w, path.delta_a))
    parts.append(
        pd.DataFrame(
            {
                "part": "flow",
                "T": T_FLOW,
                "t": path.t,
                "t_over_plateau": path.t / end,
                "alpha": path.alpha,
                "w": path.w,
                "w_inf": loss.w_inf(path.alpha),
                "smallest": eigen[:, 0],
                "largest": eigen[:, 1],
            }
        )
    )
    progress(1, 1)
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, middle, right) = panels(3, width=3.9)
    for length, colour in shades(T_LEFT).items():
        curve = table[(table["part"] == "equilibrium") & (table["T"] == length)]
        left.plot(curve["alpha"], curve["w_inf"], color=colour, label=f"T = {length}")
    left.axhline(math.sqrt(D), color="#999999", lw=0.8, ls=":")
    left.set(xscale="log", xlabel="attention α", ylabel="equilibrium weight $w_\\infty(\\alpha)$", title=f"d = {D}")
    left.legend()

    flow = table[table["part"] == "flow"]
    late = flow[flow["t_over_plateau"] <= 2]
    middle.plot(late["t_over_plateau"], late["w_inf"], "--", color=ORANGE, label="$w_\\infty(\\alpha)$")
    middle.plot(late["t_over_plateau"], late["w"], color=BLUE, label="w")
    middle.axhline(math.sqrt(D), color="#999999", lw=0.8, ls=":")
    middle.text(1.98, math.sqrt(D) - 2, "√d", fontsize=8.5, color="#666666", ha="right", va="top")
    middle.set(xlabel="time / plateau", ylabel="weight along the flow", title=f"T = {T_FLOW}, d = {D}")
    middle.legend(loc="upper left")

    shown = flow[flow["t_over_plateau"] >= 0.01]
    right.plot(shown["t_over_plateau"], shown["largest"], color=BLUE, label="largest")
    right.plot(shown["t_over_plateau"], shown["smallest"], color=RED, label="smallest")
    right.axhline(1 / D, color=BLUE, lw=0.9, ls=":")
    right.text(0.011, 1 / D * 1.12, "1/d", fontsize=8.5, color=BLUE, va="bottom")
    right.set_yscale("symlog", linthresh=1e-5)
    right.set(
        xscale="log", xlabel="time / plateau", ylabel="eigenvalue of the Hessian", title="curvature along the flow"
    )
    right.set_yticks([-1e-1, -1e-3, -1e-5, 0, 1e-5, 1e-3, 1e-1])
    right.legend(loc="lower right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    flow = table[table["part"] == "flow"]
    late = flow[flow["t_over_plateau"] > 1.2]
    gap = float((late["w"] / late["w_inf"] - 1).abs().max())
    peak = float(flow.loc[flow["largest"].idxmax(), "t_over_plateau"])
    last = late.iloc[-1]
    eps = 1 - last["alpha"]
    lam = 1 / (math.sqrt(D) * T_FLOW)
    start = flow.iloc[0]
    return [
        Claim("w follows w_inf late", f"within {gap:.2%} after 1.2 plateaus", "w is at its equilibrium", gap < 0.05),
        Claim(
            "sharpest at the transition",
            f"largest eigenvalue {flow['largest'].max():.3g} at {peak:.2f} of the plateau; 1/d = {1 / D:.3g}",
            "sharpest in the middle of the dynamics",
            bool(0.8 < peak < 1.2 and flow["largest"].max() > 2 / D),
        ),
        Claim(
            "eigenvalues at the start",
            f"{start['smallest'] / lam:.3f} and {start['largest'] / lam:.3f} times λ = 1/(√d T)",
            "±λ",
            bool(abs(start["smallest"] / lam + 1) < 0.15 and abs(start["largest"] / lam - 1) < 0.15),
            "the noise term dropped in A.3.2 shifts both by λ/(2√d)",
        ),
        Claim(
            "smallest eigenvalue late, in units of ε = 1 - α",
            f"{last['smallest'] / eps:.2g} ε at ε = {eps:.2g}",
            "of order ε",
            bool(0.1 < last["smallest"] / eps < 10),
            "the curvature along Δa is ε² (1 + 2/(T-B)), not ε: flatter than the text says (errata 7, 8)",
        ),
    ]
