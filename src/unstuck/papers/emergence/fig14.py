"""Figure 14: emergence is faster when the position tells which token matters.

B.3. Three variants of the task: relevance feature and random position; feature and fixed position; fixed position
alone. The text does not say the architecture; its first law is that of Figure 15 for one layer and one head with
Adam, so that is used here.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import (
    PAPER_D,
    PAPER_T,
    cell_ratios,
    fit_or_none,
    law_claims,
    law_panel,
    of_paper_sizes,
    ratio_text,
)
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun, grid, in_parts, runs_in
from unstuck.papers.style import panels

IN_PARTS = True  # every run is a point of its law; the claims say how many are in
FORMULA = "d + T"
VARIANTS = {  # (feature, position): title, paper's constant and exponents
    (True, "random"): ("feature, random position", 1.43, {"d": 1.31, "T": 0.58}),
    (True, "fixed"): ("feature, fixed position", 4.20, {"d": 1.22, "T": 0.29}),
    (False, "fixed"): ("no feature, fixed position", 4.61, {"d": 1.21, "T": 0.30}),
}
R2 = {(True, "random"): 0.998, (True, "fixed"): 0.996, (False, "fixed"): 0.999}


def runs(profile: Profile) -> list[TieredRun]:
    """The paper's grid in the `cpu` profile too, and the smaller d = 8 beside it."""
    out = []
    for feature, position in VARIANTS:
        fixed = {"model.layers": 1, "model.heads": 1, "task.feature": feature, "task.position": position}
        if profile == "quick":
            out += grid("regression", 2, [0], fixed, task__T=[16, 32], task__d=[8, 16])
            continue
        out += grid("regression", 2, range(5), fixed, task__T=PAPER_T, task__d=PAPER_D[:4])
        if profile == "cpu":
            out += grid("regression", 2, [0, 1], fixed, task__T=[16, 32, 64], task__d=[8])
    return out


def _part(table: pd.DataFrame, feature: bool, position: str) -> pd.DataFrame:
    return table[(table["feature"] == feature) & (table["position"] == position)]


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return in_parts(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(3, width=3.9, height=3.8)
    for ax, ((feature, position), (title, constant, paper)) in zip(axes, VARIANTS.items(), strict=True):
        law_panel(ax, _part(table, feature, position), title, (constant, paper), (20, 2e4))
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = runs_in(table)
    laws = {}
    for (feature, position), (title, _, paper) in VARIANTS.items():
        laws[feature, position] = law = fit_or_none(of_paper_sizes(_part(table, feature, position)), FORMULA)
        claims += law_claims(law, paper, where=f", {title}", r2=R2[feature, position])
    semantic = _part(table, True, "random")
    for feature, name in ((True, "flagged"), (False, "not flagged")):
        ratio, left_out = cell_ratios(_part(table, feature, "fixed"), semantic)
        if len(ratio):
            faster = True if ratio.max() < 1 else False if ratio.min() > 1 else None
            what = f"plateau with a fixed position, {name}, over a random one that is flagged"
            note = "" if faster is not None else "faster at some sizes only"
            claims.append(Claim(what, ratio_text(ratio, left_out), "faster with positional information", faster, note))
    ratio, left_out = cell_ratios(_part(table, False, "fixed"), _part(table, True, "fixed"))
    a, b = laws[True, "fixed"], laws[False, "fixed"]
    if a is not None and b is not None and len(ratio):
        ends = {t: list(zip(a.intervals[t], b.intervals[t], strict=True)) for t in ("d", "T")}  # the lows, the highs
        apart = [t for t, (lows, highs) in ends.items() if max(lows) > min(highs)]
        note = f"intervals of {', '.join(apart)} do not overlap" if apart else ""
        what = "plateau with a fixed position, not flagged over flagged"
        claims.append(Claim(what, ratio_text(ratio, left_out), "almost the same laws", not apart, note))
    return claims
