"""Figure 16: groups that overlap, four heads.

As Figure 15 with one head more than groups.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import maps
from unstuck.papers.incremental._ladder import OVERLAP, QUICK_OVERLAP, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes={**OVERLAP, "model.heads": 4}, quick={**QUICK_OVERLAP, "model.heads": 4})


data, draw, compare = maps(runs)
