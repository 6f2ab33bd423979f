"""Figure 15: groups that overlap, three heads.

Spans of four lags, each two lags after the one before.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import maps
from unstuck.papers.incremental._ladder import OVERLAP, QUICK_OVERLAP, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=OVERLAP, quick=QUICK_OVERLAP)


data, draw, compare = maps(runs)
