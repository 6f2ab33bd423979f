"""Figure 19: the full Transformer trained by SGD, loss and ladder.

The run of Figure 18.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import ladder
from unstuck.papers.incremental._ladder import SGD, full_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile, SGD)


data, draw, compare = ladder(runs, "SGD with momentum")
