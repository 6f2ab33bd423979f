"""Plateau lengths, each ratio in one run, one thread, by CPU time.

(a) The grids of Figures 1c, 2 left and 2 right: `plateau_lengths` against what the paper does, written as one would:
plain gradient descent with step 1 on the reduced loss, vectorised over the whole grid in NumPy, every cell dropped from
the arrays as soon as it is done.
(b) 10,000 settings of each flow: `plateau_lengths`, which integrates them together, against a loop over
`Flow.plateau`, which solves one after the other with LSODA; the loop is timed on some of them. Both against LSODA at a
tolerance of 1e-12.

The exit code is 1 where an aim is missed.
"""

import itertools
import sys
import time
from typing import Any

import numpy as np

from unstuck.theory import Flow, plateau_lengths
from unstuck.theory.integrate import time_to_reach
from unstuck.theory.setting import Kind

Array = Any
CELLS, TIMED = 10_000, 200  # settings of each flow, and those that the loop is timed on
AIM_DESCENT, AIM_LOOP, AIM_AGREEMENT = 20, 20, 1e-6

D = 2 ** np.arange(4, 10)
GRIDS: dict[str, dict[str, Any]] = {  # sizes that broadcast against d
    "Figure 1c": {"T": 2 ** np.arange(6, 13)[:, None], "B": 1, "p": 0.0},
    "Figure 2 left": {"T": 4096, "B": 2 ** np.arange(6)[:, None], "p": 0.0},
    "Figure 2 right": {"T": 4096, "B": 1, "p": np.array([0.0, 0.05, 0.1, 0.2, 0.3])[:, None]},
}


def descend(T: Array, d: Array, B: Array, p: Array, threshold: float = 0.1) -> Array:
    """Steps to the threshold for every cell at once, by gradient descent with learning rate 1 on Eq. 17."""
    out = np.empty(len(T))
    cells = np.arange(len(T))
    w_tilde, w, a = np.zeros(len(T)), np.zeros(len(T)), np.zeros(len(T))

    def constants() -> tuple[Array, ...]:
        sigma = (1 - p) / d
        return (T - B) / B, 1 / (d * (T - B)), p + sigma, sigma, np.sqrt(d - 1), 1 / d

    ratio, spread, sigma_t, sigma, root, inv_d = constants()
    step = 0
    while len(cells):
        A = 1 / (1 + ratio * np.exp(-a))
        N = 1 - A
        error_t, error = A * w_tilde - 1, A * w - root
        noise, squares = N * spread, w_tilde * w_tilde + w * w
        loss = 0.5 * (N * noise * squares + (error_t * error_t + error * error) * inv_d)
        if loss.min() <= threshold:
            done = loss <= threshold
            out[cells[done]] = step
            keep = ~done
            cells, T, d, B, p = cells[keep], T[keep], d[keep], B[keep], p[keep]
            w_tilde, w, a = w_tilde[keep], w[keep], a[keep]
            ratio, spread, sigma_t, sigma, root, inv_d = constants()
            continue
        slope = A * N * (w_tilde * sigma_t * error_t + w * sigma * error - noise * squares)
        w_tilde = w_tilde - (N * noise * w_tilde + A * sigma_t * error_t)
        w = w - (N * noise * w + A * sigma * error)
        a = a - slope
        step += 1
    return out


def against_descent() -> bool:
    start = time.process_time()
    ours = np.concatenate([plateau_lengths(**grid, d=D, kind="reduced").ravel() for grid in GRIDS.values()])
    ours_seconds = time.process_time() - start

    cells = [np.broadcast_arrays(grid["T"], D, grid["B"], grid["p"]) for grid in GRIDS.values()]
    T, d, B, p = (np.concatenate([c[i].ravel() * 1.0 for c in cells]) for i in range(4))
    start = time.process_time()
    descent = descend(T, d, B, p)
    descent_seconds = time.process_time() - start
    ratio = descent_seconds / ours_seconds
    print(f"(a) {len(ours)} plateau lengths ({', '.join(GRIDS)})")
    print(f"unstuck                     {ours_seconds:8.3f} s")
    print(f"gradient descent, step 1    {descent_seconds:8.3f} s   ({descent.max():.0f} steps over the whole grid)")
    print(f"largest disagreement        {np.abs(descent / ours - 1).max():8.2%}")
    print(f"ratio                       {ratio:8.1f} x   (aim {AIM_DESCENT})")
    return ratio >= AIM_DESCENT


def settings(copies: bool, frequent: bool, rng: np.random.Generator) -> list[Array]:
    """T, d, B and p at random over the papers' sizes: B > 1 if `copies`, p > 0 if `frequent`."""

    def sizes(low: int, high: int) -> Array:
        return np.exp(rng.uniform(np.log(low), np.log(high + 1), CELLS)).astype(int)

    B = sizes(2, 32) if copies else np.ones(CELLS, dtype=int)
    return [sizes(64, 65_536), sizes(16, 512), B, rng.uniform(0, 0.3, CELLS) if frequent else np.zeros(CELLS)]


def against_loop(name: str, grid: list[Array], kind: Kind) -> bool:
    T, d, B, p = grid
    start = time.process_time()
    ours = plateau_lengths(T, d, B, p, kind)
    ours_seconds = time.process_time() - start
    flows = [Flow(T[i].item(), d[i].item(), B[i].item(), p[i].item(), kind) for i in range(TIMED)]
    start = time.process_time()
    one_by_one = np.array([flow.plateau().time for flow in flows])
    loop_seconds = (time.process_time() - start) * CELLS / TIMED
    ratio = loop_seconds / ours_seconds
    tight = [time_to_reach(f.loss, f.mobility, f.test_loss, 0.1, rtol=1e-12, atol=1e-14) for f in flows]
    apart, loop_apart = (float(np.abs(x / tight - 1).max()) for x in (ours[:TIMED], one_by_one))
    print(
        f"{name:12} {kind:8} together {ours_seconds:5.2f} s, one by one {loop_seconds:5.1f} s, ratio {ratio:5.1f} "
        f"(aim {AIM_LOOP}); off by {apart:.0e} (aim {AIM_AGREEMENT:.0e}), one by one {loop_apart:.0e}"
    )
    return ratio >= AIM_LOOP and apart <= AIM_AGREEMENT


def main() -> int:
    met = [against_descent()]
    rng = np.random.default_rng(0)
    kinds: tuple[Kind, ...] = ("exact", "reduced")
    print(f"(b) {CELLS:,} settings of each flow")
    for copies, frequent in itertools.product((False, True), repeat=2):
        name = f"B {'>' if copies else '='} 1, p {'>' if frequent else '='} 0"
        met += [against_loop(name, settings(copies, frequent, rng), kind) for kind in kinds]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
