"""Runs that cannot emerge, for which the forecaster should predict no end: curves into results/negative_controls.csv.

Their learning rate is 0, or their targets belong to another sequence, or their relevance feature is always off. They
are trained for 1,200 steps at T = 32, d = 16, where the real task emerges within some 500. A hundred more are small
Transformers on random tokens, watched for 300 steps, whose relevant tokens are named at random: with few tokens and
little data, their attention drifts more. The runs `floor ...` have noise added to their targets: they emerge, and then
stand at a loss that cannot fall any more; their model is smaller, which is six times as fast. Runs that the file has
are not repeated.
"""

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import torch
from shuffled_targets import Shuffled
from torch import nn

from unstuck.attach import Watch
from unstuck.columns import STEP, TEST_LOSS, place, renamed
from unstuck.config.run import OptimSpec, RunSpec, TrainSpec
from unstuck.curve import Curve
from unstuck.forecast import Forecast, Forecaster
from unstuck.models.transformer import Transformer
from unstuck.runner.memory import keep_freed_memory
from unstuck.tasks.single_location import SingleLocation
from unstuck.tasks.task import Batch, World, config
from unstuck.training.loop import Run

OUT = Path(__file__).parents[1] / "results" / "negative_controls.csv"
STEPS = 1200


@config
class Unflagged(SingleLocation):
    """No feature marks the relevant token."""

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        batch = super().sample(n, rng, world)
        inputs = batch.inputs.clone()
        inputs[..., -1] = 0
        return batch._replace(inputs=inputs)


@config
class Noisy(SingleLocation):
    """Targets with noise, whose variance is `noise` times theirs."""

    noise: float = 1.0

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        batch = super().sample(n, rng, world)
        noise = torch.randn(batch.targets.shape, generator=rng) * math.sqrt(self.noise / self.d)
        return batch._replace(targets=batch.targets + noise)


KINDS: list[tuple[str, type[SingleLocation], float, int]] = [
    (name, task, lr, first + i)
    for first in (0, 10)
    for name, task, lr, many in (
        ("learning rate 0", SingleLocation, 0.0, 2),
        ("shuffled targets", Shuffled, 1e-4, 4),
        ("no relevance feature", Unflagged, 1e-4, 4),
    )
    for i in range(many)
]


FLOOR_SIZES, NOISES, FLOOR_SEEDS = [(8, 4), (12, 8), (16, 8), (16, 16)], [0.5, 1.0, 2.0], 2
SMALL, SMALL_LR = Transformer(width=64, qk=16), 3e-4  # of the runs that stand at a floor for most of their steps


def specs() -> dict[tuple[str, int], RunSpec]:
    """Every run, by kind and seed."""
    never = {(name, seed): _spec(task(T=32, d=16), Transformer(), lr, seed) for name, task, lr, seed in KINDS}
    floors = {
        (f"floor T={T} d={d} noise={noise:g}", seed): _spec(Noisy(T=T, d=d, noise=noise), SMALL, SMALL_LR, seed)
        for T, d in FLOOR_SIZES
        for noise in NOISES
        for seed in range(FLOOR_SEEDS)
    }
    return never | floors


def _spec(task: SingleLocation, model: Transformer, lr: float, seed: int) -> RunSpec:
    return RunSpec(
        task_name="single_location",
        task=task,
        model_name="transformer",
        model=model,
        optim=OptimSpec(lr=lr),
        train=TrainSpec(max_steps=STEPS),
        seed=seed,
    )


def curve(run: tuple[str, int]) -> pd.DataFrame:
    keep_freed_memory()
    name, seed = run
    return Run(specs()[run]).advance().curve.to_frame().assign(kind=name, seed=seed)


RANDOM, SEEDS = "random tokens", 100


def random_tokens(seed: int, steps: int = 300) -> pd.DataFrame:
    """The curve of a `Watch` on a model that nothing can be learnt with."""
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.Embedding(32, 16), layer, nn.Linear(16, 32))
    optimizer = torch.optim.Adam(model.parameters())
    probe = torch.randint(32, (8, 12), generator=torch.Generator().manual_seed(seed))
    targets = torch.zeros(8, 12, dtype=torch.bool)
    targets[torch.arange(8), torch.randint(12, (8,))] = True
    watch = Watch(model, probe, targets=targets, every=10)
    for step in range(1, steps + 1):
        batch = torch.randint(32, (16, 12))
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch(step, loss=loss)
    table = watch.curve.to_frame().rename(columns={"loss": TEST_LOSS})
    kept = [c for c in table if c in (STEP, TEST_LOSS) or ((at := place(c)) and at[0] in ("attention", "selectivity"))]
    return table[kept].assign(kind=RANDOM, seed=seed)


def forecasts(seed: int) -> list[Forecast]:
    """What is said of such a model at each row, for seeds that nothing was fitted on or chosen with."""
    curve = Curve.from_frame(random_tokens(seed), "watch")
    return [Forecaster().predict(curve.truncate(step)) for step in curve.steps]


def main() -> int:
    table = renamed(pd.read_csv(OUT), "run") if OUT.exists() else pd.DataFrame({"kind": [], "seed": []})
    there = set(zip(table["kind"], table["seed"], strict=True))
    todo = [run for run in specs() if run not in there]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for found in pool.map(curve, todo):
            table = pd.concat([table, found], ignore_index=True)
            table.to_csv(OUT, index=False, float_format="%.6g")
    new = [random_tokens(seed) for seed in range(SEEDS) if (RANDOM, seed) not in there]
    table = pd.concat([table, *new], ignore_index=True)
    table.to_csv(OUT, index=False, float_format="%.6g")
    print(table.groupby(["kind", "seed"])["test_loss"].last())
    return 0


if __name__ == "__main__":
    sys.exit(main())
