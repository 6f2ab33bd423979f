"""fig13-width: Figure 13 with a residual stream that grows with the heads.

The caption of the paper's Figure 13 says that more heads make the network wider, not which width. In fig13 attention
gets wider and the residual stream stays at 256; in fig13-split heads share a width of 256. Here the residual stream is
64 a head. The three readings share the runs with four heads.
"""

from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, grid

WIDTH = 64  # of the residual stream, a head


def runs(profile: Profile) -> list[TieredRun]:
    T, d, layers, heads, seeds = {
        "quick": ([8, 12], [4], [1, 2], [1, 4], [0]),
        "cpu": ([16, 32], [8, 16], [1, 2], [1, 2, 4, 8], [0, 1]),
        "paper": ([16, 32, 64, 128, 256], [16, 32, 64, 128], [1, 2, 4], [1, 2, 4, 8], [0, 1, 2, 3, 4]),
    }[profile]
    sizes = {"task__T": T, "task__d": d, "model__layers": layers}
    widths = [{"model.heads": n, "model.width": WIDTH * n} for n in heads]
    return [run for fixed in widths for run in grid("regression", 1, seeds, fixed, **sizes)]
