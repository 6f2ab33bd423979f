"""What a run is judged by: fixed sequences, drawn once, and all that is measured on them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.columns import (
    COPY_ADVANTAGE,
    COPY_BACKWARDS,
    COPY_IN_TEXT,
    EVALUATED,
    IN_CONTEXT_SCORE,
    MEASURES,
    SPECIALISATION,
    Row,
    alignment_columns,
    at_readout,
    head_columns,
    reference_columns,
    selectivity_columns,
    set_columns,
)
from unstuck.config import RunSpec
from unstuck.probes.attention import attention_along, attention_to, readout_entropy, row_entropy, selectivity
from unstuck.probes.induction import copy_advantage, head_scores, in_context_score, previous_token, token_losses
from unstuck.probes.ladder import alignment, specialisation
from unstuck.tasks.task import Batch, Repeated, Task

from .device import on_device
from .seeds import stream

AT_ONCE = 128  # sequences in one pass
#: Of positions, in the sequences whose rows are all measured: 16 sequences of 64 tokens, 1 of 256 or more.
PAIRS = 2**16
REPEATED = 64  # random sequences on which copying is measured
COLUMNS = {"test": "primary", "clean": "clean", "like": "like"}  # how the measures of each set are called


class Evaluator:
    """Measures a model in training on fixed sequences, without changing it.

    Sets of sequences by name: `primary` decides when a run has emerged, `clean` has no repetition, `like` is as the
    training data are; equal tasks share one. `advice` is for a schedule of repetition: it does not see what it is
    judged by.
    """

    def __init__(
        self, spec: RunSpec, model: nn.Module, world: dict[str, Tensor], device: str, references: Sequence[Tensor]
    ) -> None:
        self.model: Any = model
        self.task, self.world, self.device = spec.task, world, device
        self.references = [r.to(device) for r in references]  # others' predictions on the primary set
        self.sets: dict[str, tuple[Task, Batch]] = {}
        for name, task in (("primary", self.task.primary()), ("clean", self.task.clean()), ("like", self.task)):
            twin = next((s for s in self.sets.values() if s[0] == task), None)
            self.sets[name] = twin or self._drawn(task, task.evaluation, spec.seed, f"eval {name}", device)
        repeated = self.task.repeated_sequences(REPEATED, stream(spec.seed, "repeated"), world)
        self.repeated = repeated and repeated._replace(tokens=repeated.tokens.to(device))
        if spec.schedule.name == "adaptive":
            task = self.task.clean()
            self.sets["advice"] = self._drawn(task, task.probe, spec.seed, "advice", device)

    def _drawn(self, task: Task, n: int, seed: int, purpose: str, device: str) -> tuple[Task, Batch]:
        batch = task.held_out(n, stream(seed, purpose), self.world)
        return task, Batch(*(x.to(device) for x in batch))

    def size(self, name: str) -> int:
        return len(self.sets[name][1].inputs)

    def primary(self, n: int) -> tuple[Task, Batch]:
        """The primary task and the first n sequences of its set."""
        task, batch = self.sets["primary"]
        return task, Batch(*(x[:n] for x in batch))

    @torch.no_grad()
    def evaluate(self, name: str, n: int | None = None) -> dict[str, float]:
        """Means of all measures over a set, or over its first n sequences."""
        task, batch = self.sets[name]
        n = self.size(name) if n is None else n
        totals: dict[str, float] = {}
        for start in range(0, n, AT_ONCE):
            part = Batch(*(x[start : min(start + AT_ONCE, n)] for x in batch))
            for key, values in task.measures(self.model(part.inputs), part).items():
                totals[key] = totals.get(key, 0.0) + values.sum().item()
        return {key: total / n for key, total in totals.items()}

    @torch.no_grad()
    def observe(self) -> tuple[dict[str, float], dict[str, float]]:
        """Measures and attention on the first sequences of the primary set, from one pass."""
        task, part = self.primary(self.task.probe)
        columns: Row = {}
        if hasattr(self.model, "observe"):
            with on_device(self.device):
                links = task.links(part)
            whole = bool(links) or self.repeated is not None
            outputs, maps = self.model.observe(part.inputs, **({"whole": True} if whole else {}))
            if part.relevant.any():
                columns = readout_columns([m[:, :, -1] for m in maps] if whole else maps, part.relevant)
            columns |= self._row_columns(part.inputs, maps if whole else None)
            columns |= link_columns(maps, links)
            if self.repeated is not None:
                columns |= text_columns(outputs, maps, part.targets) | repeated_columns(self.model, self.repeated)
            if hasattr(task, "groups"):
                columns |= link_columns(
                    [m[:, :, -1:] for m in maps], {at_readout(k): v[:, -1:] for k, v in links.items()}
                )
                columns |= self._ladder_columns(maps[-1], links)
        else:
            outputs = self.model(part.inputs)
        others = (reference[: len(outputs)].float() for reference in self.references)
        columns |= reference_columns(task.distance(r, task.prediction(outputs)).mean().item() for r in others)
        return {k: v.mean().item() for k, v in task.measures(outputs, part).items()}, columns

    def _row_columns(self, inputs: Tensor, maps: list[Tensor] | None) -> Row:
        """Entropy over all rows, of a model that shows them, on the first sequences: n T^2 weights a head are many."""
        first = slice(0, max(1, PAIRS // inputs.shape[1] ** 2))
        if maps is None:
            maps = self.model.attention(inputs[first]) if hasattr(self.model, "attention") else []
        columns: Row = {}
        for layer, weights in enumerate(maps):
            columns |= head_columns("row_entropy", layer, row_entropy(weights[first]).tolist())
        return columns

    def _ladder_columns(self, weights: Tensor, links: dict[str, Tensor]) -> Row:
        """Specialisation of the last layer's heads, and, of a model that shows its value matrices, what they say."""
        mass = [attention_along(weights, link).tolist() for link in links.values()]  # (groups, heads)
        columns = {SPECIALISATION: specialisation(list(zip(*mass, strict=True)))}
        if hasattr(self.model, "value_matrices"):
            columns |= alignment_columns(alignment(self.model.value_matrices(), self.world["A"]).tolist())
        return columns

    def all(self, *, full: bool) -> tuple[dict[str, float], dict[str, float]]:
        """Measures on all sets and attention, as columns of a curve; on the whole primary set, if `full`, else on the
        sequences on which attention is looked at."""
        probed, attention = self.observe()
        size = self.size("primary")
        found = {"primary": self.evaluate("primary") if full else probed}
        for name in ("clean", "like"):  # which decide nothing, so a small look at them will do
            twins = [k for k in found if self.sets[k] is self.sets[name]]
            found[name] = found[twins[0]] if twins else self.evaluate(name, min(self.task.beside, size))
        columns: Row = {}
        for measure, value in found["primary"].items():
            if measure in ("loss", "accuracy"):
                columns |= set_columns(measure, {column: found[name][measure] for column, name in COLUMNS.items()})
            else:
                columns[measure] = value
        return columns | {EVALUATED: size if full else min(self.task.probe, size)}, attention

    @torch.no_grad()
    def predictions(self) -> Tensor:
        """What the model predicts on the primary set, in half precision."""
        task, batch = self.sets["primary"]
        parts = [task.prediction(self.model(part)).half().cpu() for part in batch.inputs.split(AT_ONCE)]
        return torch.cat(parts)


def readout_columns(maps: list[Tensor], relevant: Tensor) -> Row:
    """Attention of every layer's heads from the read-out position, (n, heads, T): to the relevant tokens, (n, T), and
    how spread it is."""
    columns: Row = {}
    for layer, weights in enumerate(maps):
        columns |= head_columns("attention", layer, attention_to(weights, relevant).tolist())
        columns |= selectivity_columns(layer, selectivity(weights, relevant).tolist())
        columns |= head_columns("readout_entropy", layer, readout_entropy(weights).tolist())
    return columns


def text_columns(logits: Tensor, maps: list[Tensor], targets: Tensor) -> Row:
    """On text, (n, T): heads that attend to the previous token, and what the context is worth."""
    columns: Row = {IN_CONTEXT_SCORE: in_context_score(token_losses(logits, targets)).mean().item()}
    for layer, weights in enumerate(maps):
        columns |= head_columns("previous_token", layer, previous_token(weights).tolist())
    return columns


def repeated_columns(model: Any, repeated: Repeated) -> Row:
    """On repeated random sequences: duplicate-token and induction heads, and how much is gained by copying; beside it
    at the end of the context, after text, and with the second pass in reverse."""
    logits, maps = model.observe(repeated.alone, whole=True)
    sequences = {COPY_ADVANTAGE: repeated.alone, COPY_IN_TEXT: repeated.tokens, COPY_BACKWARDS: repeated.backwards}
    columns: Row = {}
    for name, tokens in sequences.items():
        said = logits if name == COPY_ADVANTAGE else model(tokens)
        columns[name] = copy_advantage(said, tokens, repeated.period).mean().item()
    for layer, weights in enumerate(maps):
        for measure, values in head_scores(weights, repeated.period).items():
            columns |= head_columns(measure, layer, values.tolist())
    return columns


def link_columns(maps: list[Tensor], links: dict[str, Tensor]) -> Row:
    """Attention of every layer's heads along links, by their names."""
    columns: Row = {}
    for name, link in links.items():
        for layer, weights in enumerate(maps):
            columns |= head_columns(name, layer, attention_along(weights, link).tolist())
            if name == MEASURES["attention"]:
                columns |= selectivity_columns(layer, selectivity(weights, link).tolist())
    return columns
