"""Figure 1: the minimal model climbs a ladder of truncated truths while its heads compete, then cooperate.

Loss above that of the truth, KL to the truths of the one, two and three most important groups (shaded: on that
rung), and the specialisation index. 9,000 sequences, batch 3,000, m = 1.7.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import ladder_claims
from unstuck.papers.incremental._ladder import ladder_data, ladder_figure, minimal_runs, rungs_of
from unstuck.papers.lab import TieredRun

THEIRS = "theirs: two runs of another program"


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, seeds=[0, 1])


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    return ladder_data(runs(profile), store)


def draw(table: pd.DataFrame) -> Figure:
    return ladder_figure(table, "minimal model")


def compare(table: pd.DataFrame) -> list[Claim]:
    return [*ladder_claims(table), *_beside_reference(table)]


def _beside_reference(table: pd.DataFrame) -> list[Claim]:
    """Specialisation and KL of each run beside those of two runs of another implementation."""
    if table["step"].max() < 400:
        return []
    claims = []
    for step, theirs in ((330, 0.63), (400, 0.67)):
        ours = ", ".join(f"{row['specialisation']:.2f}" for row in _near(table, step))
        claims.append(Claim(f"specialisation at step {step}, each seed", ours, theirs, None, THEIRS))
    kl = "; ".join("/".join(f"{row[c]:.2f}" for c in rungs_of(table)) for row in _near(table, 330))
    return [*claims, Claim("KL to rungs 1/2/3 at step 330, each seed", kl, "2.1/0.56/0.15", None, THEIRS)]


def _near(table: pd.DataFrame, step: int) -> list[pd.Series]:
    """The row of each run that is nearest to a step."""
    runs = [run for _, run in table.groupby("run_id", sort=False)]
    return [run.iloc[int((run["step"] - step).abs().to_numpy().argmin())] for run in runs]
