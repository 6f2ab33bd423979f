"""Plateau lengths of the grids of Figures 1c, 2 left and 2 right: event detection against gradient descent with
step 1.

The baseline is what the paper does, written as one would: plain gradient descent on the reduced loss, vectorised
over the whole grid in NumPy, every cell dropped from the arrays as soon as it is done. Both in one run, one thread;
prints the ratio.
"""

import time
from typing import Any

import numpy as np

from unstuck.theory import plateau_lengths

Array = Any

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


def main() -> None:
    start = time.perf_counter()
    ours = np.concatenate([plateau_lengths(**grid, d=D, kind="reduced").ravel() for grid in GRIDS.values()])
    ours_seconds = time.perf_counter() - start

    cells = [np.broadcast_arrays(grid["T"], D, grid["B"], grid["p"]) for grid in GRIDS.values()]
    T, d, B, p = (np.concatenate([c[i].ravel() * 1.0 for c in cells]) for i in range(4))
    start = time.perf_counter()
    descent = descend(T, d, B, p)
    descent_seconds = time.perf_counter() - start

    print(f"plateau lengths             {len(ours)} ({', '.join(GRIDS)})")
    print(f"unstuck                     {ours_seconds:8.3f} s")
    print(f"gradient descent, step 1    {descent_seconds:8.3f} s   ({descent.max():.0f} steps over the whole grid)")
    print(f"largest disagreement        {np.abs(descent / ours - 1).max():8.2%}")
    print(f"ratio                       {descent_seconds / ours_seconds:8.1f} x")


if __name__ == "__main__":
    main()
