"""What a run is judged by: fixed sequences, drawn once, and all that is measured on them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.config import RunSpec
from unstuck.probes.attention import attention_columns, link_columns
from unstuck.probes.ladder import ladder_columns
from unstuck.tasks.task import Batch, Task

from .seeds import stream

AT_ONCE = 128  # sequences in one pass
COLUMNS = {"test": "primary", "clean": "clean", "like": "like"}  # how the measures of each set are called


class Looks:
    """Looks at a model under way; it is not changed by them.

    Sets of sequences by name: `primary` decides when a run has emerged, `clean` has no repetition, `like` is as the
    training data are; equal tasks share one. `advice` is for a schedule of repetition: what it is told is not what it
    is judged by.
    """

    def __init__(
        self, spec: RunSpec, model: nn.Module, world: dict[str, Tensor], device: str, references: Sequence[Tensor]
    ) -> None:
        self.model: Any = model
        self.task, self.world = spec.task, world
        self.references = [r.to(device) for r in references]  # others' predictions on the primary set
        self.sets: dict[str, tuple[Task, Batch]] = {}
        for name, task in (("primary", self.task.primary()), ("clean", self.task.clean()), ("like", self.task)):
            twin = next((s for s in self.sets.values() if s[0] == task), None)
            self.sets[name] = twin or self._drawn(task, task.evaluation, spec.seed, f"eval {name}", device)
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
        columns: dict[str, float] = {}
        if hasattr(self.model, "observe"):
            links = task.links(part)
            outputs, maps = self.model.observe(part.inputs, **({"whole": True} if links else {}))
            columns = attention_columns([m[:, :, -1] for m in maps] if links else maps, part)
            columns |= link_columns(maps, links)
            if "group1" in links:
                columns |= {f"readout_{k}": v for k, v in link_columns(maps, links, last=True).items()}
                values = self.model.value_matrices() if hasattr(self.model, "value_matrices") else None
                columns |= ladder_columns(columns, values, self.world["A"])
        else:
            outputs = self.model(part.inputs)
        for i, reference in enumerate(self.references):
            theirs = reference[: len(outputs)].float()
            columns[f"ref_{i + 1}"] = task.distance(theirs, task.prediction(outputs)).mean().item()
        return {k: v.mean().item() for k, v in task.measures(outputs, part).items()}, columns

    def all(self, *, full: bool) -> tuple[dict[str, float], dict[str, float]]:
        """Measures on all sets and attention, as columns of a curve; on the whole primary set, if `full`, else on the
        sequences on which attention is looked at."""
        probed, attention = self.observe()
        size = self.size("primary")
        found = {"primary": self.evaluate("primary") if full else probed}
        for name in ("clean", "like"):  # which decide nothing, so a small look at them will do
            twins = [k for k in found if self.sets[k] is self.sets[name]]
            found[name] = found[twins[0]] if twins else self.evaluate(name, min(self.task.beside, size))
        columns: dict[str, float] = {}
        for measure, value in found["primary"].items():
            if measure in ("loss", "accuracy"):
                columns |= {f"{column}_{measure}": found[name][measure] for column, name in COLUMNS.items()}
            else:
                columns[measure] = value
        return columns | {"evaluated": size if full else min(self.task.probe, size)}, attention

    @torch.no_grad()
    def predictions(self) -> Tensor:
        """What the model predicts on the primary set, in half precision."""
        task, batch = self.sets["primary"]
        parts = [task.prediction(self.model(part)).half().cpu() for part in batch.inputs.split(AT_ONCE)]
        return torch.cat(parts)
