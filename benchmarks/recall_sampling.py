"""Drawing a batch of recall at 256 tokens, 32 pairs, batch 32: its share of a training step, and against a loop over
sequences.

The baseline draws one sequence after the other with NumPy, as one writes C.1 down: a permutation as the mapping, the
query, the slots that hold it, the other keys from a second permutation (faster than `choice` without replacement).
Both in one run, one thread. `--csv FILE` keeps the numbers (results/recall-sampling.csv); the exit code is 1 where the
aim is missed.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from unstuck.config import load_spec
from unstuck.papers.provenance import provenance
from unstuck.tasks.recall import Recall
from unstuck.training.loop import Run
from unstuck.training.seeds import stream

AIM_SHARE = 0.05


def one_by_one(task: Recall, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    inputs = np.empty((n, task.T), dtype=np.int64)
    targets = np.empty(n, dtype=np.int64)
    for i in range(n):
        mapping = rng.permutation(task.tokens)
        query = rng.integers(task.repeated) if task.p and rng.random() < task.p else rng.integers(task.tokens)
        holds = rng.random(task.pairs) < (task.B - 1) / (task.pairs - 1)
        holds[rng.integers(task.pairs)] = True
        keys = rng.permutation(task.tokens - 1)[: task.pairs]
        keys[keys >= query] += 1
        keys[holds] = query
        inputs[i, 0:-1:2], inputs[i, 1::2], inputs[i, -1] = keys, mapping[keys], query
        targets[i] = mapping[query]
    return inputs, targets


def seconds(job: Callable[[], object], repeats: int) -> float:
    job()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            job()
        best = min(best, (time.perf_counter() - start) / repeats)
    return best


def main() -> int:
    torch.set_num_threads(1)
    run = Run(load_spec("recall", ["task.tokens=256", "task.pairs=32"]))
    task, rng, loop_rng = run.task, stream(0, "data"), np.random.default_rng(0)
    step = seconds(run._train_step, 2)
    ours = seconds(lambda: task.sample(32, rng, {}), 100)
    loop = seconds(lambda: one_by_one(task, 32, loop_rng), 20)
    print(f"training step            {1e3 * step:8.2f} ms")
    print(f"sampling, vectorised     {1e3 * ours:8.2f} ms")
    print(f"sampling, one by one     {1e3 * loop:8.2f} ms")
    print(f"share of a step          {ours / step:8.2%}   (aim: at most {AIM_SHARE:.0%})")
    print(f"ratio to the loop        {loop / ours:8.2f} x")
    if "--csv" in sys.argv:
        made = provenance()
        found = {"step_seconds": step, "sampling_seconds": ours, "loop_seconds": loop}
        found |= {"share_of_a_step": ours / step, "loop_over_ours": loop / ours}
        table = pd.DataFrame([{**found, "commit": made["commit"], "date": made["date"]}])
        table.to_csv(sys.argv[sys.argv.index("--csv") + 1], index=False, float_format="%.3g")
    return 0 if ours / step <= AIM_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
