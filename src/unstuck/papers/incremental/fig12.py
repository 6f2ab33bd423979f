"""Figure 12: the full Transformer with two layers.

Spans of four lags; loss and ladder.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import ladder
from unstuck.papers.incremental._ladder import full_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile, {"model.layers": 2})


data, draw, compare = ladder(runs, "full model, two layers")
