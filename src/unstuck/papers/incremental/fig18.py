"""Figure 18: the full Transformer trained by SGD, where its heads look.

Momentum 0.9, learning rate 0.2, m = 2, 6,000 steps.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import maps
from unstuck.papers.incremental._ladder import SGD, full_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile, SGD)


data, draw, compare = maps(runs)
