"""Figure 8: the farthest group matters most, where the minimal model's heads look.

Importance reversed: m^2 : m : 1 from the farthest group to the nearest.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import maps
from unstuck.papers.incremental._ladder import minimal_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return minimal_runs(profile, 1, changes={"task.importance": "far"})


data, draw, compare = maps(runs)
