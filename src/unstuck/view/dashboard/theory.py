"""What the page's first tab shows: a plateau and its curves for four sliders."""

import math
from typing import Any

import numpy as np

from unstuck.theory import Flow, blow_up_time, linearised, plateau_estimate
from unstuck.theory.setting import Kind

POINTS = 160  # of a curve
BEYOND = 1.3  # length of the curves, in plateaus


def theory(T: int, d: int, B: int = 1, p: float = 0.0, kind: Kind = "exact") -> dict[str, Any]:
    """Plateau, closed forms, curves of both flows and of the linearisation, and the equivalent command."""
    flow = Flow(T, d, B, p, kind)
    plateau = flow.plateau()
    until = BEYOND * (plateau.time or blow_up_time(flow))
    times = np.linspace(0, until, POINTS)
    estimate = plateau_estimate(flow)
    with np.errstate(over="ignore"):  # it grows without bound where it is not valid
        linear = linearised(flow, times)
    early = linear.loss >= 0  # later the linearisation is not valid
    answer: dict[str, Any] = {
        "plateau": plateau.time,
        "shown": None if plateau.time is None else f"{plateau.time:,.6g}",  # as `unstuck predict` prints it
        "reason": plateau.reason,
        "blow_up_time": blow_up_time(flow),
        "estimate": estimate if math.isfinite(estimate) else None,
        "command": _command(T, d, B, p, kind),
        "t": _numbers(times),
        "linearised": _numbers(np.where(early, linear.loss, np.nan)),
        "flows": {},
    }
    kinds: tuple[Kind, ...] = ("exact", "reduced")
    for each in kinds:
        path = Flow(T, d, B, p, each).trajectory(times=times)
        answer["flows"][each] = {
            name: _numbers(values) for name, values in (("loss", path.test_loss), ("w", path.w), ("alpha", path.alpha))
        }
    return answer


def _command(T: int, d: int, B: int, p: float, kind: Kind) -> str:
    words = [f"unstuck predict --T {T} --d {d}"]
    words += [f"--B {B}"] if B != 1 else []
    words += [f"--p {p!r}"] if p else []
    words += [f"--flow {kind}"] if kind != "exact" else []
    return " ".join(words)


def _numbers(values: Any) -> list[float | None]:
    return [float(f"{x:.6g}") if math.isfinite(x) else None for x in np.asarray(values, dtype=float).tolist()]
