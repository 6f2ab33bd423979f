"""Which heads solve recall: those that copy a key into its value and those that select the value, by attention and
ablation.

An induction head takes two steps. A head that *copies* attends from a value to the key before it, so that the value's
position holds its key. A head that *selects*, in a later layer, attends from the query to the value of its key.
Attention alone proves little: other heads may do the same, or the model may not use it. So a head is named only if the
model cannot do without it and can do without any other; heads that replace each other are named together.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.tasks.task import Batch, Task

ROLES = {"copies": "copying", "selects": "attention"}  # what a head does, and the measure that shows it
PLURAL = {"copies": "copy", "selects": "select"}
UNTRIED = "; whether heads of several layers do it together was not tried in this run"
LEARNT = 0.25  # of the way from chance to 1: below that there is nothing whose circuit could be named
COLLAPSED = 0.2  # of the accuracy above chance: what is left at most when a needed part is taken away
SPARED = 0.5  # of it: what is left at least when any other part is
Head = tuple[int, int]  # layer and head, counted from 0


def has_heads(model: nn.Module) -> bool:
    """Can heads of this model be ablated? It needs `layers`, each with `attention`, as unstuck's Transformers have."""
    there = [getattr(block, "attention", None) for block in getattr(model, "layers", [])]
    return bool(there) and all(hasattr(attention, "c") and hasattr(attention, "out") for attention in there)


@contextmanager
def ablated(model: nn.Module, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """The model with the output of some heads, given as (layer, head), replaced at each position by its mean over the
    batch. Run it on a large batch."""
    hooks = []
    by_layer: dict[int, list[int]] = {}
    if not has_heads(model):
        raise BadInput("model", type(model).__name__, "one of unstuck's Transformers: `layers`, each with `attention`")
    there: Any = [block.attention for block in model.layers]  # type: ignore[union-attr]
    for layer, head in heads:
        if not 0 <= layer < len(there) or not 0 <= head < there[layer].c.heads:
            allowed = f"(layer, head) with layers from 0 to {len(there) - 1}, heads from 0 to {there[0].c.heads - 1}"
            raise BadInput("heads", (layer, head), allowed)
        by_layer.setdefault(layer, []).append(head)
    for layer, which in by_layer.items():
        attention = there[layer]

        def cut(module: nn.Module, args: tuple[Tensor], which: list[int] = which, qk: int = attention.c.qk) -> Tensor:
            y = args[0].clone()  # (n, T, heads qk), or (n, heads qk) where only the last position is computed
            for head in which:
                part = y[..., head * qk : (head + 1) * qk]
                part[:] = part.mean(0, keepdim=True)
            return y

        hooks.append(attention.out.register_forward_pre_hook(cut))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def without_heads(
    model: Any, task: Task, batch: Batch, heads: Iterable[tuple[int, int]], measure: str = "accuracy"
) -> float:
    """The measure on `batch` without some heads, given as (layer, head)."""
    with ablated(model, heads):
        return task.measures(model(batch.inputs), batch)[measure].mean().item()


def ablations(model: Any, task: Task, batch: Batch, measure: str = "accuracy") -> pd.DataFrame:
    """The measure on `batch` without each head, and without all heads of each layer (`head` is -1)."""
    layers, heads = len(model.layers), model.c.heads
    parts = [(layer, head) for layer in range(layers) for head in (-1, *range(heads))]
    rows = []
    for layer, head in parts:
        cut = [(layer, h) for h in range(heads)] if head == -1 else [(layer, head)]
        rows.append({"layer": layer, "head": head, "without": without_heads(model, task, batch, cut, measure)})
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Part:
    """The head that plays a role, or the layer whose heads share it, or the heads of several layers that share it; or,
    where none of these is needed, none."""

    role: str
    layer: int | None = None
    head: int | None = None
    attention: float = 0.0  # of the best head, at the end
    since: int | None = None  # the step from which on that was more than half of the way from its start to its end
    without: float | None = None  # the accuracy that is left when it is ablated
    together: list[tuple[int, int]] = field(default_factory=list)  # heads of several layers, the strongest first
    without_others: float | None = None  # the accuracy that is left without as many of the weakest heads instead


@dataclass(frozen=True)
class Circuit:
    """The heads that copy, the heads that select, and the ablations that show it."""

    accuracy: float
    chance: float
    parts: list[Part]
    without: list[dict[str, float]] = field(repr=False)
    says: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_circuit(model: Any, task: Task, batch: Batch, curve: Curve | pd.DataFrame, chance: float) -> Circuit:
    """Name the circuit of a trained model from its curve and from ablations on `batch`.

    `chance` is the accuracy of a guess among the values of the context. A head is named for a role if its attention is
    the highest for it, ablating it leaves at most a fifth of the accuracy above chance, and ablating any head outside
    the circuit leaves at least half of it. Where the heads of a layer replace each other, the layer is named by the
    same rule. Where heads of several layers replace each other, the fewest of the strongest heads are named without
    which at most a fifth is left, if at least half is left without as many of the weakest. Nothing is named in a model
    that is not a quarter of the way from chance to 1, nor where the selecting head is not in a later layer than the
    copying head.
    """
    with torch.no_grad():
        accuracy = task.measures(model(batch.inputs), batch)["accuracy"].mean().item()
    table = ablations(model, task, batch)
    curve = Curve.of(curve)
    best = {role: curve.best_head(measure) for role, measure in ROLES.items()}
    parts = [_strongest(curve, role, *best[role]) for role in ROLES]
    above = accuracy - chance
    if above >= LEARNT * (1 - chance) and best["copies"][0] < best["selects"][0]:
        left = {(int(r.layer), int(r.head)): (r.without - chance) / above for r in table.itertuples()}
        without = partial(without_heads, model, task, batch)
        for i, part in enumerate(parts):
            share = partial(_shared, part, _ranked(curve, part.role, best), without, chance, above)
            parts[i] = _named(part, best, left, table, share)
    says = [_says(part, best[part.role], table) for part in parts]
    return Circuit(accuracy, chance, parts, table.to_dict("records"), says)


def _strongest(curve: Curve, role: str, layer: int, head: int) -> Part:
    """A part that is not named yet, with the attention of the strongest head for its role."""
    at = (ROLES[role], layer, head)
    return Part(role, attention=float(curve.head(*at)[-1]), since=since(curve, *at))


def _named(
    part: Part,
    best: Mapping[str, tuple[int, int]],
    left: Mapping[tuple[int, int], float],
    table: pd.DataFrame,
    share: Callable[[], Part],
) -> Part:
    """The part with the head, the layer or the heads of several layers (`share`) that its role needs, if any. `left` is
    the share of the accuracy above chance without each head, and without each layer (head -1)."""
    layer, head = best[part.role]
    heads = set(best.values())
    if left[layer, head] <= COLLAPSED and _spared(left, heads):
        return replace(part, layer=layer, head=head, without=_without(table, layer, head))
    if left[layer, -1] <= COLLAPSED and _spared(left, {(one, -1) for one, _ in heads}, layers=True):
        return replace(part, layer=layer, without=_without(table, layer, -1))
    if left[layer, head] <= COLLAPSED:
        return part
    shared = share()
    return shared if _spared(left, {*shared.together, *heads}) else part


def _spared(left: Mapping[tuple[int, int], float], named: set[tuple[int, int]], *, layers: bool = False) -> bool:
    """Can the model do without each head, or each layer, that is not named?"""
    return all(share >= SPARED for at, share in left.items() if (at[1] == -1) == layers and at not in named)


def _ranked(curve: Curve, role: str, best: Mapping[str, tuple[int, int]]) -> list[tuple[int, int]]:
    """The heads that may play a role, by their attention for it, the highest first: what copies comes before the layer
    that selects most, what selects after the one that copies most."""
    (copying, _), (selecting, _) = best["copies"], best["selects"]
    heads = curve.ranked_heads(ROLES[role])
    return [(layer, head) for layer, head in heads if (layer < selecting if role == "copies" else layer > copying)]


def _shared(
    part: Part,
    ranked: list[tuple[int, int]],
    without: Callable[[list[tuple[int, int]]], float],
    chance: float,
    above: float,
) -> Part:
    """The part with the heads that replace each other: the strongest ones without which the accuracy collapses, minus
    those not needed for that; if they are of several layers, and without as many of the weakest it does not."""

    def collapses(heads: list[tuple[int, int]]) -> bool:
        return without(heads) - chance <= COLLAPSED * above

    chosen = fewest(ranked, collapses)
    spared = without(ranked[-len(chosen) :]) if len({layer for layer, _ in chosen}) > 1 else -math.inf
    if spared - chance < SPARED * above:
        return part
    return replace(part, without=without(chosen), together=chosen, without_others=spared)


def fewest(ranked: list[Head], collapses: Callable[[list[Head]], bool]) -> list[Head]:
    """The first of the ranked heads, at least two and at most half of them, without which the model collapses, minus
    those not needed for that; none if it never does."""
    prefixes = (ranked[:many] for many in range(2, len(ranked) // 2 + 1))
    chosen = next((heads for heads in prefixes if collapses(heads)), [])
    for head in reversed(chosen):
        rest = [other for other in chosen if other != head]
        chosen = rest if collapses(rest) else chosen
    return chosen


def in_words(circuit: Mapping[str, Any], curve: Curve | pd.DataFrame) -> list[str]:
    """The sentences for a stored circuit, in today's words; they also say if the run is older than today's rule."""
    table, curve = pd.DataFrame(circuit["without"]), Curve.of(curve)
    said = []
    for stored in circuit["parts"]:
        part = Part(**stored)
        untried = part.layer is None and "together" not in stored
        said.append(_says(part, curve.best_head(ROLES[part.role]), table) + (UNTRIED if untried else ""))
    return said


def _without(table: pd.DataFrame, layer: int, head: int) -> float:
    return float(table.loc[(table["layer"] == layer) & (table["head"] == head), "without"].iloc[0])


def since(curve: Curve, measure: str, layer: int, head: int) -> int | None:
    """The step from which on a head was more than half of the way from its first to its last value, if it rose."""
    values = curve.head(measure, layer, head)
    low = values < (values[0] + values[-1]) / 2
    if values[-1] <= values[0]:
        return None
    after = int(low.nonzero()[0][-1]) + 1
    return int(curve.steps[after])


def _listed(numbers: list[int]) -> str:
    """`1, 2 and 4`"""
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def _says(part: Part, best: tuple[int, int], table: pd.DataFrame) -> str:
    """Layers and heads are counted from 1 in words, as in the paper."""
    layer, head = best
    to = {"copies": "value to key", "selects": "query to value"}[part.role]
    strength = f"attention from {to} {part.attention:.2f}"
    if part.since is not None:
        strength += f", most of it since step {part.since}"
    if part.together:
        layers = dict.fromkeys(layer for layer, _ in part.together)
        where = ", ".join(
            f"layer {one + 1} {'head' if len(which) == 1 else 'heads'} {_listed(which)}"
            for one in layers
            if (which := sorted(head + 1 for layer, head in part.together if layer == one))
        )
        strength += f"; accuracy without them {part.without:.0%}, without as many others {part.without_others:.0%}"
        return f"{len(part.together)} heads together {PLURAL[part.role]}: {where} ({strength})"
    if part.layer is None:
        strength += f"; accuracy without it {_without(table, layer, head):.0%}"
        strength += f", without its layer {_without(table, layer, -1):.0%}"
        return (
            f"no head or layer is named that {part.role}: strongest is layer {layer + 1}, head {head + 1} ({strength})"
        )
    strength += f"; accuracy without it {part.without:.0%}"
    if part.head is None:
        return f"layer {part.layer + 1} {part.role}, its heads together ({strength})"
    return f"layer {part.layer + 1}, head {part.head + 1} {part.role} ({strength})"
