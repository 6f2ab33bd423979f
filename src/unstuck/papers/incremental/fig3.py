"""Figure 3 left: the full Transformer climbs the ladder.

KL to the truths of the one, two and three most important groups, the run of Figure 2. The right panel, KL to models of
restricted context, is fig3-right.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.incremental._kinds import ladder
from unstuck.papers.incremental._ladder import full_runs
from unstuck.papers.lab import TieredRun


def runs(profile: Profile) -> list[TieredRun]:
    return full_runs(profile)


data, draw, compare = ladder(runs, "full model")
