"""Figure 7: fresh data at every step, loss and ladder.

The run of Figure 6.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import ladder
from unstuck.papers.incremental._ladder import FRESH, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, changes=FRESH)


data, draw, compare = ladder(runs, "fresh data")
