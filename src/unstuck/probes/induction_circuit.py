"""The induction circuit of a language model, named by ablation: which earlier head feeds which induction head.

On sequences of random tokens that are followed by themselves, an *induction head* attends from a token to the one that
followed it in the first pass. It can only do so if an earlier head, its *feeder*, has moved each token to the next
position (Olsson et al. 2022). A high score does not prove that the model uses a head. A head is *load-bearing* if less
than a tenth of the copying advantage is left without it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from unstuck.errors import BadInput
from unstuck.tasks.task import Repeated

from .attention import induction_score
from .circuit import SPARED, Head, ablated, fewest, has_heads
from .induction import copy_advantage

LOAD_BEARING = 0.1  # of the copying advantage: less is left without a load-bearing head, by definition
COPIES = math.log(2)  # nats: copying halves the perplexity of the second pass; below that there is nothing to name


@dataclass(frozen=True)
class Ablation:
    """What is left without a head."""

    layer: int
    head: int
    copy_advantage: float  # in nats a token
    induction: float  # score of the induction head; its own ablation does not change it


@dataclass(frozen=True)
class Together:
    """Heads that are load-bearing together, none of them alone."""

    heads: list[Head]  # the strongest first
    copy_advantage: float  # without them
    without_others: float  # without as many of the weakest heads that may do the same


@dataclass(frozen=True)
class InductionCircuit:
    """The induction head, the head that feeds it, and the ablations that show whether the model needs them. Layers and
    heads count from 0 in fields and from 1 in words."""

    kind: ClassVar[str] = "induction"

    copy_advantage: float  # of the whole model, in nats a token
    induction_head: Head  # the head with the highest induction score
    induction: float  # that score
    feeder: Head | None  # the earlier head whose ablation lowers it most; None if none does
    ablations: list[Ablation]  # of each head
    induction_heads: Together | None = None  # tried if no later head than the feeder is load-bearing alone
    feeders: Together | None = None  # tried if no earlier head than the induction head is

    @property
    def copies(self) -> bool:
        """Is there copying whose circuit could be named?"""
        return self.copy_advantage >= COPIES

    @property
    def load_bearing(self) -> list[Head]:
        """The heads that are load-bearing alone."""
        return [(a.layer, a.head) for a in self.ablations if self._collapses(a.copy_advantage)]

    @property
    def may_induce(self) -> list[Head]:
        """The heads after the feeder."""
        after = -1 if self.feeder is None else self.feeder[0]
        return [(a.layer, a.head) for a in self.ablations if a.layer > after]

    @property
    def may_feed(self) -> list[Head]:
        """The heads before the induction head."""
        return [(a.layer, a.head) for a in self.ablations if a.layer < self.induction_head[0]]

    @property
    def says(self) -> list[str]:
        """The circuit in sentences."""
        if not self.copies:
            return [
                f"no induction circuit is named: the copying advantage is {_nats(self.copy_advantage)} nats, less than "
                f"{COPIES:.2f}, at which copying halves the perplexity"
            ]
        return [self._says_induction(), self._says_feeder(), *self._says_others()]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with the kind of circuit, the load-bearing heads and the sentences."""
        return {"kind": self.kind, **asdict(self), "load_bearing": self.load_bearing, "says": self.says}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "InductionCircuit":
        """From what `as_dict` gave, also after JSON made lists of its tuples."""
        feeder = stored["feeder"]
        return cls(
            copy_advantage=stored["copy_advantage"],
            induction_head=_head(stored["induction_head"]),
            induction=stored["induction"],
            feeder=None if feeder is None else _head(feeder),
            ablations=[Ablation(**row) for row in stored["ablations"]],
            induction_heads=_together(stored["induction_heads"]),
            feeders=_together(stored["feeders"]),
        )

    def _collapses(self, left: float) -> bool:
        return self.copies and left < LOAD_BEARING * self.copy_advantage

    def _without(self, at: Head) -> Ablation:
        return next(a for a in self.ablations if (a.layer, a.head) == at)

    def _role(self, at: Head, together: Together | None, candidates: list[Head]) -> str:
        """What is left without a head, and whether it is load-bearing, alone or with others that may do the same."""
        left = self._without(at).copy_advantage
        if self._collapses(left):
            return f"{_nats(left)} without it: load-bearing"
        if together is not None:
            others = _nats(together.without_others)
            return (
                f"{_nats(left)} without it: not load-bearing alone, but {_listed(together.heads)} together are: "
                f"{_nats(together.copy_advantage)} without them, {others} without as many others"
            )
        tried = len(candidates) >= 4 and not set(candidates) & set(self.load_bearing)
        return f"{_nats(left)} without it: not load-bearing{', alone or with others' if tried else ''}"

    def _says_induction(self) -> str:
        role = self._role(self.induction_head, self.induction_heads, self.may_induce)
        return (
            f"{_named(self.induction_head)} is the induction head (score {self.induction:.2f}; copying advantage "
            f"{_nats(self.copy_advantage)} nats, {role})"
        )

    def _says_feeder(self) -> str:
        if self.feeder is None:
            return "no earlier head feeds it: no ablation of one lowers its score"
        role = self._role(self.feeder, self.feeders, self.may_feed)
        score = self._without(self.feeder).induction
        return f"{_named(self.feeder)} feeds it (induction score {score:.2f} without it; copying advantage {role})"

    def _says_others(self) -> list[str]:
        others = [at for at in self.load_bearing if at not in (self.induction_head, self.feeder)]
        return [f"also load-bearing: {_listed(others)}"] if others else []


@torch.no_grad()
def find_induction_circuit(model: Any, repeated: Repeated) -> InductionCircuit:
    """Name the induction circuit of a trained model by ablations on random sequences, each followed by itself.

    The induction head has the highest induction score. The feeder is the head of an earlier layer whose ablation lowers
    that score most. A head is load-bearing if less than a tenth of the copying advantage is left without it; nothing is
    in a model whose copying advantage is less than log 2. Where no head that may play a role is load-bearing, the
    fewest of the strongest are tried together: at most half of them, and only if at least half of the copying advantage
    is left without as many of the weakest. An ablated head's output is its mean over the sequences, so give many.
    """
    if not has_heads(model) or not hasattr(model, "observe"):
        raise BadInput("model", type(model).__name__, "one of unstuck's Transformers, with `layers` and `observe`")
    advantage, scores = _measured(model, repeated, [])  # scores: (layers, heads)
    heads = [(layer, head) for layer, of_layer in enumerate(scores) for head in range(len(of_layer))]
    best = max(heads, key=lambda at: scores[at[0]][at[1]].item())
    induction = scores[best[0]][best[1]].item()
    rows = []
    for layer, head in heads:
        left, changed = _measured(model, repeated, [(layer, head)])
        rows.append(Ablation(layer, head, left, changed[best[0]][best[1]].item()))
    earlier = sorted((a for a in rows if a.layer < best[0]), key=lambda a: a.induction)
    feeder = (earlier[0].layer, earlier[0].head) if earlier and earlier[0].induction < induction else None
    alone = InductionCircuit(advantage, best, induction, feeder, rows)
    later = sorted(alone.may_induce, key=lambda at: -scores[at[0]][at[1]].item())
    return replace(
        alone,
        induction_heads=_shared(model, repeated, alone, later),
        feeders=_shared(model, repeated, alone, [(a.layer, a.head) for a in earlier]) if feeder else None,
    )


def _measured(model: Any, repeated: Repeated, heads: Iterable[Head]) -> tuple[float, list[Tensor]]:
    """The copying advantage, and each layer's induction scores, without some heads."""
    with ablated(model, heads):
        logits, maps = model.observe(repeated.tokens, whole=True)
    advantage = copy_advantage(logits, repeated.tokens, repeated.period).mean().item()
    return advantage, [induction_score(weights, repeated.period) for weights in maps]


def _shared(model: Any, repeated: Repeated, alone: InductionCircuit, ranked: list[Head]) -> Together | None:
    """The fewest of the strongest heads that are load-bearing together, where none of them is alone."""
    if not alone.copies or any(at in alone.load_bearing for at in ranked):
        return None

    def left(heads: list[Head]) -> float:
        return _measured(model, repeated, heads)[0]

    chosen = fewest(ranked, lambda heads: left(heads) < LOAD_BEARING * alone.copy_advantage)
    others = left(ranked[-len(chosen) :]) if chosen else -math.inf
    if others < SPARED * alone.copy_advantage:
        return None
    return Together(chosen, left(chosen), others)


def _head(stored: Iterable[int]) -> Head:
    layer, head = stored
    return layer, head


def _together(stored: Mapping[str, Any] | None) -> Together | None:
    return None if stored is None else Together(**{**stored, "heads": [_head(at) for at in stored["heads"]]})


def _nats(advantage: float) -> str:
    return f"{round(advantage, 2) + 0.0:.2f}"  # 0.00, also for a negative number that is rounded to nothing


def _named(at: Head) -> str:
    return f"layer {at[0] + 1}, head {at[1] + 1}"


def _listed(heads: list[Head]) -> str:
    return "; ".join(map(_named, heads))
