"""Figure 15: Adam leaves the plateau much sooner than SGD.

B.3. One layer, one head: SGD with learning rate 5e-3 against Adam with 1e-4.
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
OPTIMISERS = {  # name: learning rate, paper's constant and exponents
    "sgd": (5e-3, 6.42, {"d": 1.44, "T": 1.07}),
    "adam": (1e-4, 1.45, {"d": 1.31, "T": 0.57}),
}

R2 = {"sgd": 0.997, "adam": 0.998}
HARD = {"T": 256, "d": 128}  # the largest size of the paper


def runs(profile: Profile) -> list[TieredRun]:
    """The paper's grid; in the `cpu` profile with SGD as far as T and d = 64, and the smaller d = 8 beside it."""
    fixed = {
        name: {"model.layers": 1, "model.heads": 1, "optim.name": name, "optim.lr": lr}
        for name, (lr, _, _) in OPTIMISERS.items()
    }
    if profile == "quick":
        return [
            run for one in fixed.values() for run in grid("regression", 2, [0], one, task__T=[8, 16], task__d=[8, 12])
        ]
    adam = grid("regression", 2, range(5), fixed["adam"], task__T=PAPER_T, task__d=PAPER_D[:4])
    long = {**fixed["sgd"], "train.max_steps": 10_000_000}  # four times the most by the paper's law
    if profile == "paper":
        return [*adam, *grid("regression", 2, range(5), long, task__T=PAPER_T, task__d=PAPER_D[:4])]
    sgd = grid("regression", 2, [0], long, task__T=PAPER_T[:3], task__d=PAPER_D[:3])
    sgd += grid("regression", 2, [1], fixed["sgd"], task__T=[16, 32], task__d=[16, 32])
    small = [run for one in fixed.values() for run in grid("regression", 2, [0, 1], one, task__T=[16, 32], task__d=[8])]
    return [*adam, *sgd, *small]


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return in_parts(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.3, height=3.8)
    top = max(3e5, 4 * table["plateau_steps"].max())
    for ax, (name, (lr, constant, paper)) in zip(axes, OPTIMISERS.items(), strict=True):
        title = f"{'SGD' if name == 'sgd' else 'Adam'}, learning rate {lr:g}"
        law_panel(ax, table[table["optim"] == name], title, (constant, paper), (50, top))
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = runs_in(table)
    laws = {name: fit_or_none(of_paper_sizes(table[table["optim"] == name]), FORMULA) for name in OPTIMISERS}
    for name, (_, _, paper) in OPTIMISERS.items():
        claims += law_claims(laws[name], paper, where=f", {name}", r2=R2[name])
    ratio, left_out = cell_ratios(*(table[table["optim"] == name] for name in ("sgd", "adam")))
    if len(ratio):
        text, hard = ratio_text(ratio, left_out, digits=0), "almost two orders of magnitude on hard tasks"
        claims.append(Claim("SGD over Adam", text, hard, None, "the paper's hard tasks go on to T = 256, d = 128"))
    sgd, adam = laws["sgd"], laws["adam"]
    if sgd is not None and adam is not None:
        ours = float(sgd.predict(HARD) / adam.predict(HARD))
        (_, a, x), (_, b, y) = OPTIMISERS["sgd"], OPTIMISERS["adam"]
        paper_ratio = a / b * HARD["d"] ** (x["d"] - y["d"]) * HARD["T"] ** (x["T"] - y["T"])
        where = f"T = {HARD['T']}, d = {HARD['d']}"
        claims.append(
            Claim(
                f"SGD over Adam by the laws at {where}",
                f"{ours:.0f} times",
                f"{paper_ratio:.0f} times",
                None,
                "ours is extrapolated",
            )
        )
    return claims
