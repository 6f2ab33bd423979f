"""Figure 11: the minimal model with two layers.

27,000 sequences, spans of four lags, m = 1.8, learning rate 0.04.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import ladder
from unstuck.papers.incremental._ladder import TWO_LAYERS, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=TWO_LAYERS, quick={"model.layers": 2})


data, draw, compare = ladder(runs, "two layers")
