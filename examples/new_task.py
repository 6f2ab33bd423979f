"""Your own task in forty lines: train it over a grid of sizes, fit a power law, plot the plateaus.

    python examples/new_task.py [--small] [--out DIR]      # --small: a small model and small sizes

The target is the sum of two flagged tokens, so the model must find both.
"""

import sys
from pathlib import Path

import torch

from unstuck.laws import fit_power_law
from unstuck.models.transformer import Transformer
from unstuck.papers.style import look, panels, plateau_axes
from unstuck.runner.api import run_spec
from unstuck.runner.sweep import run_sweep
from unstuck.store.store import Store
from unstuck.tasks.task import Batch, Task, config


@config
class FlaggedSum(Task):
    """Add the two flagged tokens.

    x_1  [x_2]  x_3  [x_4]        y* = x_2 + x_4
    """

    T: int = 16  # sequence length
    d: int = 4  # token dimension

    @property
    def inputs(self):
        return self.d + 1

    @property
    def outputs(self):
        return self.d

    def sample(self, n, rng, world):
        tokens = torch.randn(n, self.T, self.d, generator=rng) / self.d**0.5
        where = torch.rand(n, self.T, generator=rng).topk(2, dim=1).indices
        relevant = torch.zeros(n, self.T, dtype=torch.bool).scatter_(1, where, True)
        flag = relevant[:, :, None].float()
        return Batch(torch.cat([tokens, flag], 2), (tokens * flag).sum(1), relevant)


def main(small: bool, out: Path) -> None:
    lengths, dims = ([6, 12], [1, 2]) if small else ([8, 16, 32], [4, 8, 16])
    model = Transformer(width=64, heads=2, qk=32) if small else Transformer()
    optim = {"lr": 1e-3} if small else {"lr": 1e-4}
    train = {"thresholds": 0.2, "max_steps": 4000}
    specs = [run_spec(FlaggedSum(T=T, d=d), model, optim=optim, train=train) for T in lengths for d in dims]
    store = Store(out / "runs")
    print(run_sweep(specs, store, workers=1 if small else 2).as_json())
    table = store.table()
    law = fit_power_law(table, "T + d")
    print(law, f"R² = {law.r2:.3f}")
    with look():
        picture, (ax,) = panels()
        for d, rows in table.groupby("d"):
            ax.plot(rows["T"], rows["plateau_steps"], "o", label=f"d = {d}")
        plateau_axes(ax, "sequence length T", lengths, "plateau (steps to test loss 0.2)")
        ax.legend()
        picture.savefig(out / "flagged_sum.png")


if __name__ == "__main__":
    where = Path(sys.argv[sys.argv.index("--out") + 1]) if "--out" in sys.argv else Path("example")
    main("--small" in sys.argv, where)
