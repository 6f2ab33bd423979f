"""What the figures cost: runs, steps, floating-point operations, hours on one core and on a GPU."""

from collections.abc import Sequence
from typing import Any

from unstuck.runner.cost import GPU, GPU_PEAK, GPU_SHARE, GPU_STEP, OVERHEAD, RATE, Cost, predicted_cost

from .catalogue import available
from .figure import Job, Profile, is_trained, load
from .lab import plan


def figure_costs(profile: Profile) -> list[dict[str, Any]]:
    """A row for each figure that can be drawn, and one for all; runs that figures share count once there."""
    rows: list[dict[str, Any]] = []
    seen: dict[str, Cost] = {}
    for name in available():
        figure = load(name)
        jobs = plan(figure, profile)
        rows.append(_row(name, sum(job.count for job in jobs), jobs))
        for run in figure.runs(profile) if is_trained(figure) else ():  # type: ignore[attr-defined]
            cost = predicted_cost(run.spec)
            known = seen.get(run.spec.run_id)
            if known is None or known.steps < cost.steps:
                seen[run.spec.run_id] = cost
    return [*rows, _row("all trained runs, each once", len(seen), list(seen.values()))]


def _row(figure: str, runs: int, parts: Sequence[Job | Cost]) -> dict[str, Any]:
    return {
        "figure": figure,
        "runs": runs,
        "steps": sum(part.steps for part in parts),
        "flops": sum(part.flops for part in parts),
        "cpu_hours": sum(part.seconds for part in parts) / 3600,
        "gpu_hours": sum(part.gpu_hours for part in parts),
    }


def assumptions() -> dict[str, Any]:
    """What the hours rest on."""
    return {
        "gpu": GPU,
        "gpu_flops_per_second": GPU_PEAK,
        "gpu_share_of_peak": GPU_SHARE,
        "gpu_least_seconds_a_step": GPU_STEP,
        "cpu_multiplications_per_second": RATE,
        "cpu_seconds_a_step": OVERHEAD,
        "in words": (
            f"Operations of a step: 6 x batch x multiply-adds of a forward pass. A core: {RATE:.2g} multiply-adds a "
            f"second and {1e3 * OVERHEAD:g} ms a step. GPU: {GPU}, {100 * GPU_SHARE:g}% of its {GPU_PEAK / 1e12:g} "
            f"TFLOP/s (TF32, data sheet), and at least {1e3 * GPU_STEP:g} ms a step for launching kernels; runs one "
            "after another. Steps by the plateau laws, at most train.max_steps. Computed, not measured on a GPU."
        ),
    }
