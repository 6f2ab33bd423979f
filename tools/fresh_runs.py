"""The runs on which the forecaster is tested after it was frozen: settings, seeds and budgets, by group.

Their seeds are those of no run of `results/store`. Each is predicted to take at most `LONGEST` hours, all together some
35 hours on one core (`python tools/registered.py list`). Sizes of the first group are those of Figure 3 whose plateaus
are predicted to be longest: a run is asked about only once its loss has stood at a level, some 300 steps.
"""

import os
from pathlib import Path
from typing import Any

from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.text._runs import BURST, LONG

FIRST_SEED = 7000
LONGEST = 1.5  # predicted hours of a run
NEVER = "cannot emerge"
RANDOM_TOKENS = range(20_000, 20_200)  # seeds of the docs' example, drawn where forecasts are scored


def fresh_runs() -> dict[str, list[TieredRun]]:
    """All groups. The runs of the last one, `NEVER`, cannot emerge."""
    return {
        "regression": _sizes(6, *_B1, {"T": 64, "d": 64, "B": 2}, {"T": 64, "d": 64, "B": 4}),
        "regression, larger sizes": _sizes(4, *_LARGER),
        "regression, p > 0": _sizes(5, *({"d": d, "p": p} for d in (32, 64) for p in (0.1, 0.4))),
        "recall": _recall(4, [32, 64], [4, 8]),
        "recall, layer norm": _recall(4, [32, 64], [4], layer_norm=True),
        "MQAR, layer norm": [*_mqar(4, {}), *_mqar(4, {"tokens": 64, "pairs": 8, "T": 64})],
        "text": [*_text(10, {}, positions="rotary"), *_text(10, {}, layers=4, mlp=True)],
        NEVER: _never(),
    }


_B1 = [{"T": T, "d": d} for T, d in ((16, 64), (32, 32), (32, 64), (64, 16), (64, 32), (64, 64), (128, 16), (128, 32))]
_LARGER = [{"T": T, "d": d} for T, d in ((16, 128), (64, 128), (128, 64), (256, 8), (256, 16))]


def _runs(preset: str, seeds: int, **sections: dict[str, Any]) -> list[TieredRun]:
    """One setting with several seeds."""
    fixed = {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}
    return grid(preset, 0, range(FIRST_SEED, FIRST_SEED + seeds), fixed)


def _sizes(seeds: int, *sizes: dict[str, Any]) -> list[TieredRun]:
    return [run for task in sizes for run in _runs("regression", seeds, task=task)]


def _recall(seeds: int, tokens: list[int], pairs: list[int], **model: Any) -> list[TieredRun]:
    """Until half of the answers are right, as in Figure 4."""
    train = {"thresholds": [0.05, 0.5], "max_steps": 30_000}
    tasks = [{"tokens": t, "pairs": p} for t in tokens for p in pairs]
    return [run for task in tasks for run in _runs("recall", seeds, task=task, model=model, train=train)]


def _mqar(seeds: int, task: dict[str, Any]) -> list[TieredRun]:
    return _runs("mqar", seeds, task=task, train={"max_steps": 6000})


def _text(seeds: int, task: dict[str, Any], steps: int = LONG, **model: Any) -> list[TieredRun]:
    return _runs("text", seeds, task={"burst": BURST} | task, model=model, train={"max_steps": steps})


def _never() -> list[TieredRun]:
    size, train = {"T": 32, "d": 16}, {"max_steps": 1200}
    text, shuffled = 3000, os.path.relpath(Path(__file__).with_name("shuffled_targets.py"))
    return [
        *_runs("regression", 12, task=size, optim={"lr": 0.0}, train=train),
        *_runs("regression", 12, task=size | {"name": shuffled}, train=train),
        *_text(12, {"burst": 0.0, "bigrams": "stripped"}, text),
        *_text(12, {}, text, layers=1),
        *_text(12, {"burst": 0.0, "ngram": 3}, text),
    ]
