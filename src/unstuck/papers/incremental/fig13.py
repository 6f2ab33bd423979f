"""Figure 13: lags of a group that do not weigh the same, where the minimal model's heads look.

Weights 0.7 and 0.3 inside a span, scaled to a mean of one.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import maps
from unstuck.papers.incremental._ladder import UNEVEN, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 2, changes=UNEVEN, quick={"task.span": 2, **UNEVEN})


data, draw, compare = maps(runs)
