"""Figure 14: emergence is faster when the position tells which token matters.

B.3. Three variants of the task: relevance feature and random position; feature and fixed position; fixed position
alone. The text does not say the architecture; its first law is that of Figure 15 for one layer and one head with
Adam, so that is used here.
"""

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._regression import fit_or_none, law_claims, law_panel
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import panels

FORMULA = "d + T"
VARIANTS = {  # (feature, position): title, paper's constant and exponents
    (True, "random"): ("feature, random position", 1.43, {"d": 1.31, "T": 0.58}),
    (True, "fixed"): ("feature, fixed position", 4.20, {"d": 1.22, "T": 0.29}),
    (False, "fixed"): ("no feature, fixed position", 4.61, {"d": 1.21, "T": 0.30}),
}


def runs(profile: Profile) -> list[TieredRun]:
    T, d, seeds = {
        "quick": ([16, 32], [8, 16], [0]),
        "cpu": ([16, 32, 64], [8, 16, 32], [0, 1]),
        "paper": ([16, 32, 64, 128, 256], [16, 32, 64, 128], [0, 1, 2, 3, 4]),
    }[profile]
    small = {"model.layers": 1, "model.heads": 1}
    out = []
    for feature, position in VARIANTS:
        fixed = {**small, "task.feature": feature, "task.position": position}
        out += grid("regression", 2, seeds, fixed, task__T=T, task__d=d)
    return out


def _part(table: pd.DataFrame, feature: bool, position: str) -> pd.DataFrame:
    return table[(table["feature"] == feature) & (table["position"] == position)]


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(3, width=3.9, height=3.8)
    for ax, ((feature, position), (title, constant, paper)) in zip(axes, VARIANTS.items(), strict=True):
        law_panel(ax, _part(table, feature, position), title, (constant, paper), (20, 2e4))
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims: list[Claim] = []
    for (feature, position), (title, _, paper) in VARIANTS.items():
        claims += law_claims(fit_or_none(_part(table, feature, position), FORMULA), paper, where=f", {title}")
    return claims
