"""Figure 6: fresh data at every step, where the minimal model's heads look.

Mean attention of each head at four steps, one colour a head; 512 new sequences a step instead of a training set.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import maps
from unstuck.papers.incremental._ladder import FRESH, minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, changes=FRESH)


data, draw, compare = maps(runs)
