"""Figure 14: lags of a group that do not weigh the same, loss and ladder.

The run of Figure 13.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import ladder
from unstuck.papers.incremental._ladder import UNEVEN, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=UNEVEN, quick={"task.span": 2, **UNEVEN})


data, draw, compare = ladder(runs, "weights 0.7 and 0.3 in a span")
