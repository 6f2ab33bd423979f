"""incremental-fig3-right: the full Transformer passes by models that see less, one after the other.

Figure 3 right: KL from models of restricted context, trained to the end, to the model without restriction, over its
training.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.incremental._climb import passing_claims
from unstuck.papers.incremental._ladder import compared, full_runs, plot_passing
from unstuck.papers.lab import TieredRun, curves
from unstuck.papers.style import panels


def runs(profile: Profile) -> list[TieredRun]:
    return compared([run._replace(tier=3) for run in full_runs(profile)], contexts(profile))


def contexts(profile: Profile) -> list[int]:
    return [1, 2, 3] if profile == "quick" else [4, 8, 12]


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    table = curves(runs(profile)[-1:], store)
    if table.empty:
        return table
    names = {f"ref_{i + 1}": f"context_{c}" for i, c in enumerate(contexts(profile))}
    return table[["run_id", "step", *names]].rename(columns=names)


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.0, height=3.6)
    plot_passing(ax, table)
    ax.legend(loc="upper right")
    ax.set_title("full model against models of restricted context")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    return passing_claims(table)
