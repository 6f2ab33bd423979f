"""fig3-large: Figure 3 left at four larger sizes.

The runs of fig3-left without repetition, and one seed each at (T, d) = (128, 64), (256, 32), (256, 64) and (64, 128).
Do the exponents between neighbouring sizes go towards the paper's?
"""

from unstuck.papers.emergence._regression import left_runs
from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, grid

LARGE: dict[Profile, list[tuple[int, int]]] = {
    "quick": [(8, 8)],
    "cpu": [(128, 64), (256, 32), (256, 64), (64, 128)],
    "paper": [(512, 64), (512, 128)],
}


def runs(profile: Profile) -> list[TieredRun]:
    large = [run for T, d in LARGE[profile] for run in grid("regression", 2, [0], {"task.T": T, "task.d": d})]
    small = grid("regression", 1, [0], task__T=[8, 16], task__d=[4]) if profile == "quick" else left_runs(profile)
    return [*small, *large]
