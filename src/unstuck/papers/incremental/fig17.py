"""Figure 17: groups that overlap, loss and ladder for three and four heads.

The runs of Figures 15 (strong line) and 16 (faint).
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import ladder
from unstuck.papers.incremental._ladder import OVERLAP, QUICK_OVERLAP, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=OVERLAP, quick=QUICK_OVERLAP, model__heads=[3, 4])


data, draw, compare = ladder(runs, "overlapping groups", by="heads", apart=False)
