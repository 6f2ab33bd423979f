"""What the figures cost: runs, steps, floating-point operations, hours on one core and on a GPU.

Computed from the specifications of all of their runs, some thousands. `costs.csv` has the rows of all profiles, for
`unstuck figures` (cost_table.py); `python tools/generate_docs.py` writes it.
"""

from collections.abc import Sequence
from typing import Any

from unstuck.runner.cost import Cost, predicted_cost

from .catalogue import Profile, available
from .cost_table import ALL, CostRow
from .figure import Job, is_trained, load
from .lab import plan


def figure_cost(name: str, profile: Profile) -> CostRow:
    jobs = plan(load(name), profile)
    return _row(name, profile, sum(job.count for job in jobs), jobs)


def figure_costs(profile: Profile) -> list[CostRow]:
    """A row for each figure that can be drawn, and one for all; runs that figures share count once there."""
    rows: list[CostRow] = []
    seen: dict[str, Cost] = {}
    for name in available():
        figure: Any = load(name)
        rows.append(figure_cost(name, profile))
        for run in figure.runs(profile) if is_trained(figure) else ():
            cost = predicted_cost(run.spec)
            known = seen.get(run.spec.run_id)
            if known is None or known.steps < cost.steps:
                seen[run.spec.run_id] = cost
    return [*rows, _row(ALL, profile, len(seen), list(seen.values()))]


def _row(figure: str, profile: Profile, runs: int, parts: Sequence[Job | Cost]) -> CostRow:
    return CostRow(
        figure,
        profile,
        runs,
        steps=sum(part.steps for part in parts),
        flops=float(sum(part.flops for part in parts)),
        cpu_hours=sum(part.seconds for part in parts) / 3600,
        gpu_hours=float(sum(part.gpu_hours for part in parts)),
    )
