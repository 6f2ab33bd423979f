"""Figure 2: the full Transformer, where its heads look over training.

Mean attention of each head at steps 0, 60, 300 and 1,000, one colour a head; spans of four lags.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import maps
from unstuck.papers.incremental._ladder import full_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile)


data, draw, compare = maps(runs)
