"""Figure 5 right: recall with cross-sample repetition, tested on clean data.

Section 3.2. Accuracy on data without repetition for several p; each line is a run, dotted a guess among the context's
values. Figure 16 has the same runs on data like their training data. Of 64 tokens the two repeated ones are too large a
part to judge the paper's 256 by; fig5-cross-128 has 128.
"""

from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.emergence._repetition import repetition_claims, repetition_data, repetition_figure, repetition_runs
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun

SMALL_VOCABULARY = "two repeated tokens are a large part of so small a vocabulary: fig5-cross-128 judges"


def runs(profile: Profile) -> list[TieredRun]:
    return repetition_runs(profile, "p")


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return repetition_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return repetition_figure(table, "p")


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = repetition_claims(table, "p", 0.0, factor=2)
    return [claim if claim.paper is None else replace(claim, agrees=None, note=SMALL_VOCABULARY) for claim in claims]
