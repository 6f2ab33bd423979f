"""no-residual: the laws without residual connections.

Section 3.2 supposes that the exponent of the vocabulary is low because residual connections do most of what the
feedforward layers would have to learn. With and without them (`model.skip`): regression on the small sizes of Figure 3
left, where d stands for the vocabulary, and recall of 4 pairs, from PyTorch's and from Xavier's start.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import exponent_text, fit_or_none, law_text, plot_plateaus
from unstuck.papers.style import note, panels

from ._recall import SMALL, UNTIL_50, crossing, step_list
from ._regression import cell_ratios, local_exponents, ratio_text

IN_PARTS = True  # runs are compared size by size
ALSO = ["skip", "init"]  # settings of the model in the table
HYPOTHESIS = "low because of residual connections (hypothesis)"
SKIPS = {False: "without", True: "with"}
INITS = ["default", "xavier"]  # of recall: from the first it may not be learnt without residual connections


def runs(profile: Profile) -> list[TieredRun]:
    T, d, tokens, seeds, recall = {
        "quick": ([8], [4, 6], [16], [0], {**SMALL, "train.max_steps": 60}),
        "cpu": ([16, 32, 64], [8, 16, 32], [16, 32, 64], [0, 1], {"train.max_steps": 12_000}),
        "paper": ([16, 32, 64, 128, 256], [8, 16, 32, 64, 128], [32, 64, 128], [0, 1, 2], {"train.max_steps": 100_000}),
    }[profile]
    recall = {**recall, "task.pairs": 4, "train.thresholds": UNTIL_50}
    skip = list(SKIPS)
    return [
        *grid("regression", 2, seeds, model__skip=skip, task__T=T, task__d=d),
        *grid("recall", 2, seeds[:1], recall, model__skip=skip, model__init=INITS, task__tokens=tokens),
    ]


def _regression(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The runs of regression with and without residual connections, at the sizes and seeds that both have."""
    part = table[table["d"].notna()]
    sizes = ["T", "d", "seed"]
    both = part[part["skip"]][sizes].merge(part[~part["skip"]][sizes])
    return {name: part[part["skip"] == skip].merge(both, on=sizes) for skip, name in SKIPS.items()}


@once
def _laws(table: pd.DataFrame) -> dict[str, PowerLaw | None]:
    return {name: fit_or_none(part, "d + T") for name, part in _regression(table).items()}


def _recall(table: pd.DataFrame) -> pd.DataFrame:
    """The runs of recall to 50%, each named by its start and its residual connections."""
    part = table[table["d"].isna()]
    if part.empty:
        return part
    part = crossing(part, 0.5)
    return part.assign(how=part["skip"].map(SKIPS) + " residual connections, " + part["init"] + " start")


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(3, width=4.0, height=3.8)
    for ax, (name, part) in zip(axes, _regression(table).items(), strict=False):
        ax.set_title(f"regression, {name} residual connections")
        if len(part):
            plot_plateaus(ax, part, "d", "T", _laws(table)[name])
            ax.set_ylim(top=ax.get_ylim()[1] * 3)
            note(ax, law_text(_laws(table)[name]))
            ax.legend(loc="lower right", fontsize=7.5)
    part = _recall(table)
    axes[2].set_title("recall, 4 pairs")
    if len(part):
        plot_plateaus(axes[2], part, "tokens", "how", y="steps to 50% accuracy")
        axes[2].legend(loc="best", fontsize=7.5)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims, parts = runs_in(table), _regression(table)
    for term in ("d", "T"):
        shown = [f"{name} {exponent_text(law, term)}" for name, law in _laws(table).items() if law]
        claims.append(Claim(f"regression: exponent of {term}", ", ".join(shown) or "too few runs yet"))
    ratio, left_out = cell_ratios(parts["without"], parts["with"])
    if len(ratio):
        claims.append(Claim("regression: plateau without residual connections over with", ratio_text(ratio, left_out)))
    return [*claims, *_recall_claims(_recall(table))]


def _recall_claims(part: pd.DataFrame) -> list[Claim]:
    claims, shown = [], []
    for how, rows in part.groupby("how") if len(part) else ():
        rows = rows.sort_values("tokens")
        steps = rows["plateau_steps"].where(rows["status"] == "emerged", np.inf)
        sizes = ", ".join(f"{tokens:.0f}" for tokens in rows["tokens"])
        shown.append(f"{how}: {step_list(list(steps), list(rows['steps']))} ({sizes} tokens)")
        local = local_exponents(rows, "tokens", ("tokens", "pairs"))
        claims.append(Claim(f"recall: exponent of tokens, {how}", local.ours, HYPOTHESIS, None))
    return [Claim("recall: steps to 50%", "; ".join(shown)), *claims] if shown else []
