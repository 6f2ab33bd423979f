"""Figure 9: the farthest group matters most, loss and ladder.

The run of Figure 8. The rungs are the truths of the one, two and three most important groups, now the farthest first.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import ladder
from unstuck.papers.incremental._ladder import minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, changes={"task.importance": "far"})


data, draw, compare = ladder(runs, "farthest group first")
