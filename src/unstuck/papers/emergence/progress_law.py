"""progress-law: how much of the plateau has passed is erf(√Δa), whatever T, d, B and p are.

Erratum 2, not in the paper. For T >> B the score gap and the weight obey v' = c e^Δa, Δa' = m c e^Δa v, so Δa = m
v²/2 and the elapsed fraction of the time to blow-up is erf(sqrt(Δa)). Left: every flow on that one curve, and the
Transformers of Figure 3 left and middle over them, as far as the store has them. Middle: the
end of the plateau that the law predicts while it lasts. Right: the closed forms against the simulated plateau.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unstuck.curve import Curve
from unstuck.forecast.features import gain
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.lab import TieredRun, curves, finished
from unstuck.papers.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, panels, shades
from unstuck.theory import Flow, blow_up_time, plateau_estimate
from unstuck.theory import progress as law
from unstuck.theory.setting import Kind

from ._regression import each_once, left_runs, middle_runs

T, D, LARGE = [64, 256, 1024, 4096, 16384], [16, 64, 512], 1024  # the law is asymptotic: collapsed from T = LARGE on
FAMILIES: dict[str, tuple[Kind, int, float, str]] = {
    "no repetition": ("exact", 1, 0.0, BLUE),
    "B = 8, reduced flow": ("reduced", 8, 0.0, ORANGE),
    "B = 8, exact flow": ("exact", 8, 0.0, GREEN),
    "p = 0.1": ("exact", 1, 0.1, PURPLE),
}
FRACTIONS = np.linspace(0.02, 1.0, 99)
RUNS = "Transformer, Adam"


def plan(profile: Profile) -> list[Job]:
    return [Job("flow", len(FAMILIES) * len(T) * len(D), 1.0)]


def overlaid(profile: Profile) -> list[TieredRun]:
    """Runs that are drawn over the theory where the store has them; none is trained for it."""
    return each_once([*left_runs(profile), *middle_runs(profile)])


def data(profile: Profile, progress: Progress, store: Path | None = None) -> pd.DataFrame:
    theory = flows(progress)
    return theory if store is None else pd.concat([theory, measured(overlaid(profile), store)], ignore_index=True)


def measured(runs: list[TieredRun], store: Path) -> pd.DataFrame:
    """Part of the plateau elapsed, and logarithm of the best head's gain in attention, of runs that emerged."""
    results = finished(runs, store)
    if results.empty:
        return pd.DataFrame()
    plateaus = results[results["status"] == "emerged"].set_index("run_id")["plateau_steps"]
    parts = []
    for run_id, curve in curves(runs, store).groupby("run_id", sort=False):
        if run_id in plateaus:
            end = plateaus[run_id]
            rising = np.interp(FRACTIONS * end, curve["step"], gain(Curve.of(curve)))
            sizes = {name: curve[name].iloc[0] for name in ("T", "d", "B", "p", "seed")}
            parts.append(
                pd.DataFrame({"family": RUNS, **sizes, "plateau": end, "fraction": FRACTIONS, "delta_a": rising})
            )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def flows(progress: Progress) -> pd.DataFrame:
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
    _draw_runs(left, middle, table[table["family"] == RUNS])
    x = np.linspace(0, 4, 400)
    left.plot(x, law(x), "--", color=BLACK, lw=1.6, label="erf √Δa")
    left.set(
        xlim=(0, 4),
        ylim=(0, 1.02),
        xlabel="score gap Δa = log of the attention gain",
        ylabel="elapsed fraction of the plateau",
    )
    left.legend(loc="lower right")
    runs = table[table["family"] == RUNS]
    sizes = f"flows: T = {LARGE} to {T[-1]}, d = {D[0]} to {D[-1]}"
    if not runs.empty:
        sizes += (
            f"\nTransformers: T = {runs['T'].min()} to {runs['T'].max()}, d = {runs['d'].min()} to {runs['d'].max()}"
        )
    left.set_title(sizes)
    right.set_title("no repetition")
    middle.axhline(1, color=BLACK, ls="--", lw=1.2)
    middle.set(
        xlim=(0, 1),
        ylim=(0.3 if (table["family"] == RUNS).any() else 0.8, 1.1),
        xlabel="elapsed fraction of the plateau",
        ylabel="forecast t / erf √Δa  over the true plateau",
    )
    shown = table[(table["family"] == "no repetition") & (table["fraction"] == table["fraction"].max())]
    for d, colour in shades(D).items():
        rows = shown[shown["d"] == d]
        for column, line, face, name in (
            ("blow_up", "o:", "white", "√(π/2) √d T"),
            ("estimate", "o-", colour, "with drag and finish"),
        ):
            ratio, label = rows[column] / rows["plateau"], f"{name}, d = {d}"
            right.plot(rows["T"], ratio, line, color=colour, ms=5, mfc=face, lw=1.2, label=label)
    right.axhline(1, color=BLACK, ls="--", lw=1.2)
    right.set(
        xscale="log", xlabel="sequence length T", ylabel="closed form over the simulated plateau", ylim=(0.62, 1.02)
    )
    right.set_xticks(T, [str(t) for t in T])
    right.minorticks_off()
    right.legend(loc="lower right", fontsize=7.8)
    return picture


def _draw_runs(left: Axes, middle: Axes, runs: pd.DataFrame) -> None:
    if runs.empty:
        return
    forecast = _forecasts(runs)
    each = list(runs.groupby(["T", "d", "B", "seed"]))
    for i, (_, run) in enumerate(each):
        label = f"{len(each)} Transformers (Adam)" if i == 0 else None
        left.plot(run["delta_a"], run["fraction"], color=RED, lw=0.6, alpha=0.35, zorder=0, label=label)
    middle_of = forecast.groupby(runs["fraction"])
    low, high = middle_of.quantile(0.1), middle_of.quantile(0.9)
    middle.fill_between(low.index, low, high, color=RED, alpha=0.15, lw=0, label="Transformers: 80% of them")
    middle.plot(low.index, middle_of.median(), color=RED, lw=1.8, label="Transformers: median")
    middle.legend(loc="lower right")


def _error_at(table: pd.DataFrame, fraction: float) -> pd.Series:
    near = table[(table["fraction"] - fraction).abs() < 0.006]
    return _forecasts(near) - 1


def _claim_of_runs(runs: pd.DataFrame) -> list[Claim]:
    if runs.empty:
        return []
    parts = (0.2, 0.3, 0.4, 0.5, 0.7)
    errors = [_error_at(runs, part) for part in parts]
    text = ", ".join(f"{e.abs().median():.0%}" for e in errors)
    bias = ", ".join(f"{e.median():+.0%}" for e in errors)
    many = len(runs.drop_duplicates(["T", "d", "B", "seed"]))
    return [
        Claim(
            f"the same on {many} Transformers, at {', '.join(f'{part:.0%}' for part in parts)}",
            text,
            note=f"bias {bias}; no parameter fitted",
        )
    ]


def compare(table: pd.DataFrame) -> list[Claim]:
    runs, table = table[table["family"] == RUNS], table[table["family"] != RUNS]
    big = table[table["T"] >= LARGE]

    def at(fraction: float) -> str:
        error = _error_at(big, fraction).abs()
        return f"{error.median():.1%} (worst {error.max():.1%})"

    once = big[big["fraction"] == big["fraction"].max()]
    one, three = once["blow_up"] / once["plateau"], once["estimate"] / once["plateau"]
    return [
        Claim("error of t / erf(√Δa) at 20%, 50%, 80% of the plateau, T ≥ 1024", f"{at(0.2)}, {at(0.5)}, {at(0.8)}"),
        *_claim_of_runs(runs),
        Claim("√(π/2)/μ over the plateau, T ≥ 1024", f"{one.min():.3f} to {one.max():.3f}"),
        Claim(
            "the same with drag and finish",
            f"{three.min():.3f} to {three.max():.3f}",
            note="plateau_estimate, three terms",
        ),
    ]
