"""Figure 4: a smaller start keeps the heads together for longer; without a hierarchy there are no stages.

Loss above that of the truth, for several starts of the queries (values at zero) and for several m.
"""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._ladder import ladder_data, minimal_runs, rungs_of, stages_of
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import panels, shades

SCALES, RATIOS = [0.0, 1e-9, 1e-6, 1e-3], [1.0, 1.3, 1.5, 1.7]


def runs(profile: Profile) -> list[TieredRun]:
    scales = minimal_runs(profile, 1, changes={"model.value": 0.0}, model__query=SCALES)
    return [*scales, *minimal_runs(profile, 1, task__m=RATIOS)]


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def _parts(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs with a start of the queries of their own, and those with Xavier's."""
    xavier = table["query"].astype(str) == "xavier"
    return table[~xavier].assign(query=lambda t: t["query"].astype(float)), table[xavier]


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.4)
    scales, ratios = _parts(table)
    for ax, part, key, label in ((left, scales, "query", "queries within ±"), (right, ratios, "m", "m = ")):
        for value, colour in shades(sorted(part[key].unique())).items():
            rows = part[part[key] == value]
            ax.plot(rows["step"], rows["excess_loss"], color=colour, label=f"{label}{value:g}")
        ax.set(xlabel="step", ylabel="loss above that of the truth", yscale="log")
        ax.legend(loc="upper right", fontsize=7.5)
    left.set_title("start of the queries, values at 0")
    right.set_title("importance ratio, Xavier start")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    scales, ratios = _parts(table)
    found = {float(scale): stages_of(curve) for scale, curve in scales.groupby("query")}
    turns = {scale: stages.cooperation for scale, stages in found.items()}
    last = {scale: stages.rungs[-1].reached for scale, stages in found.items()}
    # From the largest start down; heads that never part do so later than all.
    waits = [np.inf if t is None else t for scale, t in sorted(turns.items(), reverse=True) if scale > 0]
    later = all(a < b for a, b in itertools.pairwise(waits)) if len(waits) > 1 and np.isfinite(waits[0]) else None
    stays = {float(m): _stay(curve) for m, curve in ratios.groupby("m")}
    lengths = list(stays.values())
    longer = lengths == sorted(lengths) and lengths[0] < lengths[-1] if len(lengths) > 1 else None
    claims = [
        Claim(
            "cooperation begins at step, by start of the queries", _steps(turns), "later the smaller the start", later
        )
    ]
    if 0.0 in turns:
        never = "true" if turns[0.0] is None else "false"
        claims.append(Claim("queries that start at exactly 0 never specialise", never, None, None))
    return [
        *claims,
        Claim("on the last rung from step, by start of the queries", _steps(last), None, None),
        Claim(
            "steps for which rung 2 is the nearest",
            ", ".join(f"m = {m:g}: {stay:.0f}" for m, stay in stays.items()),
            "shorter the nearer m is to 1",
            longer,
        ),
        Claim(
            "loss above the truth at the end",
            ", ".join(f"m = {m:g}: {c['excess_loss'].iloc[-1]:.2f}" for m, c in ratios.groupby("m")),
            None,
            None,
        ),
    ]


def _steps(by_scale: dict[float, float | None]) -> str:
    return ", ".join(f"{s:g}: {'never' if t is None else f'{t:.0f}'}" for s, t in by_scale.items())


def _stay(curve: pd.DataFrame) -> float:
    """How long the run is nearer to rung 2 than to the others."""
    names = rungs_of(curve)
    nearest = curve[names].to_numpy().argmin(1)
    return float(np.gradient(curve["step"].to_numpy(dtype=float))[nearest == 1].sum())
