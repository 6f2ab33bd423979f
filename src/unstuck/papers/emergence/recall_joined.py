"""recall-joined: recall with one of its two attention patterns given.

Section 3.2 supposes that the exponent of the pairs is so high because two sparse attention patterns have to be learnt
together, each adding to it. With `task.joined` a key and its value stand at one position, so that nothing has to be
copied and only the selection is left. Does the exponent halve? Beside the same numbers of pairs of recall-pairs, at 64
tokens. The input map has 2 tokens + 1 inputs instead of as many as tokens, and so starts smaller by sqrt(2).
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.plateaus import exponent_text, fit_or_none, law_text, plot_plateaus
from unstuck.papers.style import legend_outside, note, panels

from . import recall_pairs
from ._recall import SMALL, UNTIL_50, crossing
from ._regression import local_exponents

IN_PARTS = True  # runs are compared size by size
NAMES = {True: "a pair at one position", False: "key and value apart"}


def runs(profile: Profile) -> list[TieredRun]:
    fixed, pairs, more = {
        "quick": ({**SMALL, "task.tokens": 32, "train.max_steps": 300}, [3, 4], []),
        "cpu": ({"task.tokens": 64, "train.max_steps": 15_000}, [4, 8, 12, 16, 24], [4, 8]),
        "paper": ({"task.tokens": 256, "train.max_steps": 100_000}, [16, 24, 32, 48], [16, 24, 32, 48]),
    }[profile]
    joined = {**fixed, "task.joined": True, "train.thresholds": UNTIL_50}
    apart = [run for run in recall_pairs.runs(profile) if run.spec.task.tokens == fixed["task.tokens"]]
    return [
        *grid("recall", 2, [0], joined, task__pairs=pairs),
        *grid("recall", 2, [1], joined, task__pairs=more),  # a second seed
        *(run for run in apart if run.spec.task.pairs in pairs),
    ]


@once
def _laws(table: pd.DataFrame) -> dict[tuple[float, bool], PowerLaw | None]:
    """By level, and whether a pair is at one position."""
    parts = {level: crossing(table, level) for level in UNTIL_50}
    return {
        (level, joined): fit_or_none(part[part["joined"] == joined], "pairs")
        for level, part in parts.items()
        for joined in NAMES
    }


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(2, width=4.4, height=3.8)
    for ax, threshold in zip(axes, UNTIL_50, strict=True):
        part = crossing(table, threshold)
        part = part.assign(how=part["joined"].map(NAMES))
        plot_plateaus(ax, part, "pairs", "how", y=f"steps to {threshold:.0%} accuracy")
        note(ax, "\n".join(f"{name}: {law_text(_laws(table)[threshold, how])}" for how, name in NAMES.items()))
        ax.set_ylim(top=ax.get_ylim()[1] * 6)
    axes[0].set_title(f"recall, {table['tokens'].iloc[0]} tokens")
    legend_outside(picture, axes[1])
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = runs_in(table)
    for threshold in (0.5, 0.05):
        part, to = crossing(table, threshold), f", to {threshold:.0%}"
        for joined, name in NAMES.items():
            where = f"{to}, {name}"
            claims.append(local_exponents(part[part["joined"] == joined], "pairs", ("tokens", "pairs"), where))
        one, two = (_laws(table)[threshold, joined] for joined in (True, False))
        if one is not None and two is not None:
            share = one.exponents["pairs"] / two.exponents["pairs"]
            text = f"{exponent_text(one, 'pairs')} joined, {exponent_text(two, 'pairs')} apart: {share:.2f} of it"
            claims.append(Claim(f"exponent of pairs{to}", text, "each pattern adds to it (hypothesis)", None))
        claims += _ratios(part, to)
    return claims


def _ratios(part: pd.DataFrame, to: str) -> list[Claim]:
    """Steps joined over apart, for each number of pairs at which all runs of both got there."""
    emerged = part.assign(log=np.log(part["plateau_steps"].where(part["status"] == "emerged")))
    means = emerged.groupby(["joined", "pairs"])["log"].agg(lambda logs: logs.mean(skipna=False))
    if set(emerged["joined"]) != {True, False}:
        return []
    ratio = np.exp(means[True] - means[False]).dropna()
    text = ", ".join(f"{pairs} pairs: {x:.2f}" for pairs, x in ratio.items())
    return [Claim(f"steps joined over apart{to}", text or "no size where all runs got there")]
