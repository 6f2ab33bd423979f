"""recall-embedding: why recall takes us about twice as long as the paper's law says.

Steps to 5% over the paper's law, with 8 and with 12 pairs. Three things may explain it: the start of the token
embedding (that of a linear map, which shrinks with the vocabulary, or N(0, 1)), the rule for the query's slots
(recall-rule), and the learning rate, which the paper tunes.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, once
from unstuck.papers.lab import TieredRun, each_rate, grid, runs_in
from unstuck.papers.plateaus import explain_triangles, plot_runs
from unstuck.papers.style import BLACK, BLUE, GREEN, ORANGE, PAPER_GREY, RED, legend_outside, log_steps, panels

from ._recall import SMALL, UNTIL_50, crossing, guessed, paper_law

IN_PARTS = True  # runs are compared one by one; what is missing is said
ALSO = ["embedding"]  # a setting of the model in the table
OURS, NORMAL, RULE = "linear start", "normal start", "the paper's rule"
COLOURS = {OURS: BLACK, NORMAL: BLUE, RULE: GREEN, "rate 0.0003": ORANGE, "rate 3e-05": RED}
EXPLAINS = 0.5  # of the factor, in logarithms: from there on a change explains most of it


def runs(profile: Profile) -> list[TieredRun]:
    """Both starts of the embedding and the paper's rule (tier 1), and other learning rates at 12 pairs (tier 2)."""
    if profile == "quick":
        fixed = {**SMALL, "task.pairs": 4, "train.thresholds": [0.05], "train.max_steps": 300}
        return grid("recall", 1, [0], fixed, task__tokens=[32, 48], model__embedding=["linear", "normal"])
    tokens, pairs, steps = {"cpu": ([32, 64, 128], [8, 12], 30_000), "paper": ([64, 128, 256], [16, 32, 48], 200_000)}[
        profile
    ]
    fixed = {"train.thresholds": [0.05], "train.max_steps": steps}
    starts = {"model__embedding": ["normal", "linear"]}
    found = []
    for t in tokens:  # the middle one to 50% too, where it is more than a guess
        thresholds = UNTIL_50 if t == tokens[1] else [0.05]
        settings = {**fixed, "train.thresholds": thresholds, "task.tokens": t}
        found += grid("recall", 1, [0, 1], settings, **starts, task__pairs=pairs)
    found += grid("recall", 1, [0, 1], {**fixed, "task.copies": "bernoulli"}, task__tokens=[64], task__pairs=pairs[:1])
    shorter = {**fixed, "train.max_steps": steps // 2}  # where 1e-4 has long got there
    rates = grid("recall", 2, [0], shorter, task__tokens=tokens[:2], task__pairs=pairs[-1:])
    return [*found, *each_rate(rates, [3e-4, 3e-5])]


@once
def variants(table: pd.DataFrame) -> pd.DataFrame:
    """Steps to 5% of every run, named by what it has otherwise than ours (`variant`), and over the paper's law
    (`ratio`); a run that did not get there counts with the steps it had."""
    part = _named(crossing(table, 0.05))
    steps = part["plateau_steps"].where(part["status"] == "emerged", part["steps"])
    return part.assign(ratio=steps / paper_law(part["tokens"], part["pairs"]))


def _named(part: pd.DataFrame) -> pd.DataFrame:
    usual = part["lr"].mode().iloc[0] if len(part) else 1e-4
    names = pd.Series(OURS, index=part.index)
    names = names.mask(part["lr"] != usual, "rate " + part["lr"].map("{:g}".format))
    names = names.mask(part["copies"] == "bernoulli", RULE).mask(part["embedding"] == "normal", NORMAL)
    return part.assign(variant=names)


def draw(table: pd.DataFrame) -> Figure:
    part = variants(table)
    cells = sorted({(p, t) for t, p in zip(part["tokens"], part["pairs"], strict=True)})
    picture, (ax,) = panels(width=7.6, height=3.8)
    for i, (name, rows) in enumerate(part.groupby("variant", sort=False)):
        x = np.array([cells.index((p, t)) for t, p in zip(rows["tokens"], rows["pairs"], strict=True)]) + 0.1 * i - 0.2
        plot_runs(ax, x, rows, COLOURS.get(str(name), PAPER_GREY), str(name), y="ratio")
    explain_triangles(ax, part)
    ax.axhline(1, color=PAPER_GREY, lw=1, ls=":")
    ax.set_xticks(range(len(cells)), [f"{t} tokens\n{p} pairs" for p, t in cells])
    ax.set_ylabel("steps to 5% over the paper's law")
    ax.margins(y=0.15)
    log_steps(ax)
    legend_outside(picture, ax)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    part = variants(table)
    claims = runs_in(table)
    for name, rows in part.groupby("variant", sort=False):
        shown = []
        for pairs, cell in rows.groupby("pairs"):
            slow = int((cell["status"] != "emerged").sum())
            late = f", {slow} not there by the last step" if slow else ""
            mean = np.exp(np.log(cell["ratio"]).mean())
            low, high = cell["ratio"].min(), cell["ratio"].max()
            shown.append(f"{pairs} pairs: {mean:.2f} times ({low:.2f} to {high:.2f}, {len(cell)} runs{late})")
        claims.append(Claim(f"steps to 5% over the paper's law, {name}", "; ".join(shown), "1", None, guessed(rows)))
    return [*claims, *explanation(part), *to_half(table)]


def explanation(part: pd.DataFrame) -> list[Claim]:
    """Which change explains the factor over the law: the one that brings it down most, if that is by half or more in
    logarithms; at the sizes that the change was run at, those with the most pairs, where a guess matters least."""
    logs = np.log(part["ratio"]).groupby([part["variant"], part["pairs"], part["tokens"]]).mean()
    late = part[part["status"] != "emerged"].groupby("variant").size()
    if OURS not in logs.index.get_level_values(0) or logs[OURS].max() <= 0:  # then there is no factor to explain
        return []
    base = logs[OURS]
    shares, shown = {}, []
    for name in [n for n in COLOURS if n != OURS]:
        mine = logs[name] if name in logs.index.get_level_values(0) else logs[:0]
        both = pd.DataFrame({"ours": base, "theirs": mine}).dropna() if len(mine) else pd.DataFrame()
        if both.empty:
            shown.append(f"{name}: not run yet")
            continue
        most = both[both.index.get_level_values("pairs") == both.index.get_level_values("pairs").max()]
        before, after = most["ours"].mean(), most["theirs"].mean()
        shares[name] = float(1 - after / before)
        at = f"{most.index.get_level_values('pairs').max()} pairs, {len(most)} size{'s' * (len(most) > 1)}"
        to = "at least " if name in late else ""
        shown.append(f"{name}: from {np.exp(before):.2f} to {to}{np.exp(after):.2f} times the law ({at})")
    if not shares:
        return [Claim("what explains the factor", "; ".join(shown))]
    best = max(shares, key=lambda name: shares[name])
    missing = len(shares) < len(COLOURS) - 1
    if shares[best] >= EXPLAINS:
        answer = best + (", and goes beyond the law" if shares[best] > 2 - EXPLAINS else "")
    else:
        answer = "none of them" + (" so far" if missing else "")
    return [Claim("what explains the factor", f"{answer} ({'; '.join(shown)})", note="means of logarithms")]


def to_half(table: pd.DataFrame) -> list[Claim]:
    """Steps to 50% from both starts, where a guess plays no part."""
    part = _named(crossing(table, 0.5))
    shown = []
    for (pairs, tokens), rows in part[part["status"] == "emerged"].groupby(["pairs", "tokens"]):
        means = rows.groupby("variant")["plateau_steps"].mean()
        if {OURS, NORMAL} <= set(means.index):
            ours, normal = means[OURS], means[NORMAL]
            shown.append(f"{tokens} tokens, {pairs} pairs: {ours:.0f} and {normal:.0f}, {ours / normal:.1f} times")
    quantity = "steps to 50%, linear and normal start"
    return [Claim(quantity, "; ".join(shown), note="means of the seeds")] if shown else []
