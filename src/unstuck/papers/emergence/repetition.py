"""Figure 5: recall with repetition, tested on clean data.

Section 3.2. Accuracy on data without repetition for several B or p; each line is a run, dotted a guess among the
context's values. Figure 16 has the same runs on data like their training data.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.figure import Figure as Picture

from unstuck.columns import CLEAN_ACCURACY
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid, runs_in
from unstuck.papers.style import legend_outside, panels

from ._recall import SMALL, UNTIL_90
from ._repetition import plot_accuracy, repetition_claims, repetition_data, repetition_runs

SMALL_VOCABULARY = "two repeated tokens are a large part of so small a vocabulary: fig5-cross-128 judges"


@dataclass(frozen=True)
class RepetitionFigure:
    """Clean accuracy of runs that differ in one kind of repetition."""

    title: str
    runs: Callable[[Profile], list[TieredRun]]
    key: str  # what is repeated: B or p
    none: float  # its value without repetition
    factor: float  # by which the paper's best repetition is faster
    in_parts: bool = False
    not_judged: str = ""  # why the paper's statements only stand beside ours

    def data(self, done: Finished) -> pd.DataFrame:
        table = repetition_data(done)
        return table.assign(wanted=len(done.runs)) if self.in_parts else table

    def draw(self, table: pd.DataFrame) -> Picture:
        picture, (ax,) = panels(width=5.6, height=3.7)
        plot_accuracy(ax, table, self.key, CLEAN_ACCURACY)
        ax.set_ylabel("accuracy on clean data")
        ax.set_title(f"recall, {table['tokens'].iloc[0]} tokens, {table['pairs'].iloc[0]} pairs")
        legend_outside(picture, ax)
        return picture

    def compare(self, table: pd.DataFrame) -> list[Claim]:
        claims = [*runs_in(table), *repetition_claims(table, self.key, self.none, self.factor)]
        if not self.not_judged:
            return claims
        return [c if c.paper is None else replace(c, agrees=None, note=self.not_judged) for c in claims]


def _at_128_tokens(profile: Profile) -> list[TieredRun]:
    seeds, p, fixed = {
        "quick": ([0], [0.0, 0.5], {**SMALL, "task.tokens": 24, "task.pairs": 4, "train.max_steps": 500}),
        "cpu": ([0, 1], [0.0, 0.2, 0.3, 0.5], {"task.tokens": 128, "task.pairs": 8, "train.max_steps": 30_000}),
        "paper": ([0, 1, 2], [0.0, 0.2, 0.3, 0.5], {"task.tokens": 256, "task.pairs": 32, "train.max_steps": 300_000}),
    }[profile]
    return grid("recall", 2, seeds, {**fixed, "train.thresholds": UNTIL_90, "train.after": 500}, task__p=p)


FIGURES: dict[str, RepetitionFigure] = {
    "fig5-context": RepetitionFigure(
        "Figure 5 left: recall with in-context repetition, tested on clean data",
        lambda profile: repetition_runs(profile, "B"),
        key="B",
        none=1.0,
        factor=4,
    ),
    "fig5-cross": RepetitionFigure(
        "Figure 5 right: recall with cross-sample repetition, tested on clean data",
        lambda profile: repetition_runs(profile, "p"),
        key="p",
        none=0.0,
        factor=2,
        not_judged=SMALL_VOCABULARY,
    ),
    "fig5-cross-128": RepetitionFigure(
        "fig5-cross-128: Figure 5 right at 128 tokens, where the two repeated ones are a smaller part",
        _at_128_tokens,
        key="p",
        none=0.0,
        factor=2,
        in_parts=True,  # runs are compared one by one; the claims say how many are in
    ),
}
