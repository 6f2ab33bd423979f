"""progress-law: how much of the plateau has passed is erf(√Δa), whatever T, d, B and p are.

Erratum 2, not in the paper. For T >> B the score gap and the weight obey v' = c e^Δa, Δa' = m c e^Δa v, so Δa = m
v²/2 and the elapsed fraction of the time to blow-up is erf(sqrt(Δa)). Left: every flow on that one curve. Middle:
what it says of the plateau's end, read off while it lasts. Right: the closed forms against the simulated plateau.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, panels, shades
from unstuck.theory import Flow, blow_up_time, plateau_estimate
from unstuck.theory import progress as law
from unstuck.theory.setting import Kind

T, D, LARGE = [64, 256, 1024, 4096, 16384], [16, 64, 512], 1024  # the law is asymptotic: collapsed from T = LARGE on
FAMILIES: dict[str, tuple[Kind, int, float, str]] = {
    "no repetition": ("exact", 1, 0.0, BLUE),
    "B = 8, reduced flow": ("reduced", 8, 0.0, ORANGE),
    "B = 8, exact flow": ("exact", 8, 0.0, GREEN),
    "p = 0.1": ("exact", 1, 0.1, PURPLE),
}
FRACTIONS = np.linspace(0.02, 1.0, 99)


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", len(FAMILIES) * len(T) * len(D), 1.0)]


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    parts, done, of = [], 0, len(FAMILIES) * len(T) * len(D)
    for family, (kind, B, p, _) in FAMILIES.items():
        for length in T:
            for d in D:
                flow = Flow(length, d, B, p, kind)
                end = flow.plateau().time or 0.0
                path = flow.trajectory(times=FRACTIONS * end)
                sizes = {"family": family, "T": length, "d": d, "B": B, "p": p, "flow": kind}
                closed = {"plateau": end, "blow_up": blow_up_time(flow), "estimate": plateau_estimate(flow)}
                parts.append(pd.DataFrame({**sizes, **closed, "fraction": FRACTIONS, "delta_a": path.delta_a}))
                done += 1
                progress(done, of)
    return pd.concat(parts, ignore_index=True)


def _forecasts(table: pd.DataFrame) -> pd.Series:
    """What t / erf(sqrt(Δa)) says of the plateau, over the true one."""
    return table["fraction"] / law(table["delta_a"])


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, middle, right) = panels(3, width=4.1, height=3.8)
    forecast = _forecasts(table)
    for family, (_, _, _, colour) in FAMILIES.items():
        part = table[(table["family"] == family) & (table["T"] >= LARGE)]
        for i, (_, run) in enumerate(part.groupby(["T", "d"])):
            left.plot(
                run["delta_a"], run["fraction"], color=colour, lw=0.9, alpha=0.75, label=family if i == 0 else None
            )
            middle.plot(run["fraction"], forecast[run.index], color=colour, lw=0.9, alpha=0.75)
    x = np.linspace(0, 4, 400)
    left.plot(x, law(x), "--", color=BLACK, lw=1.6, label="erf √Δa")
    left.set(
        xlim=(0, 4),
        ylim=(0, 1.02),
        xlabel="score gap Δa = log of the attention gain",
        ylabel="elapsed fraction of the plateau",
    )
    left.legend(loc="lower right")
    left.set_title(f"T = {LARGE} to {T[-1]}, d = {D[0]} to {D[-1]}")
    right.set_title("no repetition")
    middle.axhline(1, color=BLACK, ls="--", lw=1.2)
    middle.set(
        xlim=(0, 1),
        ylim=(0.8, 1.1),
        xlabel="elapsed fraction of the plateau",
        ylabel="forecast t / erf √Δa  over the true plateau",
    )
    shown = table[(table["family"] == "no repetition") & (table["fraction"] == table["fraction"].max())]
    for d, colour in shades(D).items():
        rows = shown[shown["d"] == d]
        right.plot(
            rows["T"],
            rows["blow_up"] / rows["plateau"],
            "o:",
            color=colour,
            ms=5,
            mfc="white",
            lw=1.2,
            label=f"√(π/2) √d T, d = {d}",
        )
        right.plot(
            rows["T"],
            rows["estimate"] / rows["plateau"],
            "o-",
            color=colour,
            ms=5,
            lw=1.2,
            label=f"with drag and finish, d = {d}",
        )
    right.axhline(1, color=BLACK, ls="--", lw=1.2)
    right.set(
        xscale="log", xlabel="sequence length T", ylabel="closed form over the simulated plateau", ylim=(0.62, 1.02)
    )
    right.set_xticks(T, [str(t) for t in T])
    right.minorticks_off()
    right.legend(loc="lower right", fontsize=7.8)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    big = table[table["T"] >= LARGE]
    error = (_forecasts(big) - 1).abs()

    def at(fraction: float) -> str:
        near = error[(big["fraction"] - fraction).abs() < 0.006]
        return f"{near.median():.1%} (worst {near.max():.1%})"

    once = big[big["fraction"] == big["fraction"].max()]
    one, three = once["blow_up"] / once["plateau"], once["estimate"] / once["plateau"]
    return [
        Claim(
            "error of t / erf(√Δa) at 20%, 50%, 80% of the plateau, T ≥ 1024",
            f"{at(0.2)}, {at(0.5)}, {at(0.8)}",
            None,
            None,
        ),
        Claim("√(π/2)/μ over the plateau, T ≥ 1024", f"{one.min():.3f} to {one.max():.3f}", None, None),
        Claim(
            "the same with drag and finish",
            f"{three.min():.3f} to {three.max():.3f}",
            None,
            None,
            "plateau_estimate, three terms",
        ),
    ]
