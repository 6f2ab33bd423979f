"""The runs of paper 2's figures in the published settings; on a small chain in the quick profile.

Runs with the published teacher judge: two training seeds of the minimal model and of Figures 2 and 3, one of the other
figures of the full model. Some figures of the minimal model have two more Haar teachers, which stand beside. The `cpu`
and the `paper` profile are the same: the published sizes run on two cores.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unstuck.papers.figure import Profile
from unstuck.papers.lab import TieredRun, grid

from ._published import updates

#: A chain on which the minimal model climbs the whole ladder in seconds, for the quick profile.
QUICK: dict[str, Any] = {
    "task.d": 16,
    "task.span": 1,
    "task.tau": 0.3,
    "task.sequences": 2000,
    "train.batch": 1000,
    "optim.lr": 0.04,
    "train.max_steps": 300,
}
QUICK_FULL = {"model.width": 48, "model.mlp": 32, "optim.lr": 0.01, "train.max_steps": 200}

SMALL_START = {"model.query": 1e-9, "model.value": 0.0}
QUICK_START = {"model.query": 1e-3, "model.value": 0.0}  # from 1e-9 heads would not part in a quick run
ONLINE = {"task.sequences": 0}  # a batch of new sequences at every step
TWO_LAYERS = {"model.layers": 2, "task.sequences": 27_000, "task.span": 4, "task.m": 1.8, "optim.lr": 0.04}
TWO_LAYERS_FULL = {"model.layers": 2, "optim.lr": 1e-3}
FARTHEST_FIRST = {"task.importance": "far", "task.span": [2, 4, 8]}
UNEVEN = {"task.weights": [0.7, 0.3]}
OVERLAP = {"task.span": 4, "task.stride": 2}
#: As in the authors' public trainer, which Figures 18 and 19 fit; that of Figures 1 to 9 is not public.
DROPOUT_ONCE = {"model.dropout_in": "first of a pass"}
SGD = {"optim.name": "sgd", "optim.lr": 0.2, "optim.momentum": 0.9, "optim.weight_decay": 0.0, "task.m": 2.0}
SGD |= DROPOUT_ONCE
CONTEXT_STEPS = 2000  # for which models of restricted context are trained
SGD_CONTEXT_STEPS = 10_000


def after(steps: Iterable[int]) -> list[int]:
    """Published steps as numbers of updates."""
    return [int(updates(step)) for step in steps]


def minimal_runs(
    profile: Profile,
    steps: int,
    maps: Iterable[int] = (),
    changes: Mapping[str, Any] | None = None,
    quick: Mapping[str, Any] | None = None,
    *,
    tier: int = 1,
    other_teachers: bool = False,
    **lists: Sequence[Any],
) -> list[TieredRun]:
    """Runs of the minimal model with `changes`, to the published step `steps`, keeping maps at some; in the quick
    profile on a small chain, with `quick` instead."""
    if profile == "quick":
        fixed = {**QUICK, "train.maps": [0, 60, 150, 300], **((changes if quick is None else quick) or {})}
        return grid("markov-minimal", tier, [0], fixed, **lists)
    fixed = {"train.max_steps": after([steps])[0], "train.maps": after(maps), **(changes or {})}
    runs = grid("markov-minimal", tier, [0, 1], {**fixed, "task.teacher": "published"}, **lists)
    return [*runs, *(grid("markov-minimal", tier, [0, 1], fixed, **lists) if other_teachers else ())]


def full_runs(
    profile: Profile,
    steps: int,
    maps: Iterable[int] = (),
    changes: Mapping[str, Any] | None = None,
    quick: Mapping[str, Any] | None = None,
    *,
    tier: int = 1,
) -> list[TieredRun]:
    """Runs of the full Transformer, likewise; one training seed, since a run takes an hour or more."""
    if profile == "quick":
        fixed = {**QUICK, **QUICK_FULL, **((changes if quick is None else quick) or {}), "train.maps": [0, 60, 200]}
        return grid("markov-full", tier, [0], fixed)
    fixed = {"train.max_steps": after([steps])[0], "train.maps": after(maps), "task.teacher": "published"}
    return grid("markov-full", tier, [0], {**fixed, **(changes or {})})


def with_contexts(
    runs: Sequence[TieredRun], contexts: Sequence[int], profile: Profile, steps: int = CONTEXT_STEPS
) -> list[TieredRun]:
    """Each run after the models of restricted context that it is compared with: the same architecture on windows of so
    many tokens, the same training set and optimiser, no clipping."""
    out = []
    for run in runs:
        spec = run.spec
        train = replace(spec.train, predictions=True, maps=())
        if profile != "quick":
            train = replace(train, max_steps=steps)
        models = [
            replace(spec, model=replace(spec.model, context=c), optim=replace(spec.optim, clip=0.0), train=train)
            for c in contexts
        ]
        ids = tuple(model.run_id for model in models)
        compared = replace(spec, train=replace(spec.train, compare=ids))
        out += [TieredRun(run.tier, s, race=f"compared {compared.run_id}") for s in (*models, compared)]
    return out


def another_seed(run: TieredRun) -> TieredRun:
    """The same run with training seed 1, not compared with models of restricted context."""
    return TieredRun(run.tier, replace(run.spec, seed=1, train=replace(run.spec.train, compare=())))


def main_runs(runs: Iterable[TieredRun]) -> list[TieredRun]:
    """The runs themselves, without the models of restricted context."""
    return [run for run in runs if not run.spec.model.context]
