"""`Watch`: two lines in anybody's training loop, and a curve like those of our own runs."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor, nn

from unstuck.errors import BadInput, Impossible
from unstuck.forecast.forecaster import Forecast, Forecaster
from unstuck.forecast.signals import LINKS
from unstuck.runs.store import RunDirectory
from unstuck.scalars import is_whole, measure

from .record import beside, each_attention, unwrapped

INDUCTION = 16  # sequences that repeat themselves
SHORTEST = 6  # length of such a sequence; in one of 4 the token before is also that after the last time


class Watch:
    """Looks at a model's attention on a fixed batch every so many steps.

        watch = Watch(model, probe, vocabulary=256)
        for step, batch in enumerate(batches):
            ...
            watch(step, loss=loss)

    `probe` is what the model takes: a tensor, a tuple of arguments or a mapping. `targets` names positions to
    watch: True in (n, columns), seen from the last position, or in (n, rows, columns); layers whose attention has
    another shape, as that of an encoder to a decoder's, are passed over. Of a task that is learnt in two steps name
    both: `{"attn": mask, "copy": mask}`, where the answer is found and what has to be copied there first. With
    `vocabulary`, a model of token indices is also tested for induction on random sequences of `length` that repeat
    themselves; give it a list of indices where your data have but some of them, since a model knows nothing of
    those it never saw. `tokens` makes the model's input from such a batch where it is more than the tensor itself.
    `attention` replaces the recording: a function of model and inputs that gives the weights of each layer, (n,
    heads, rows, columns), in a list or one after the other.

    The weights of one layer are there at a time, n * heads * rows * columns numbers of four bytes, and about three
    times that while they are summed up: keep the probe small, and without padding, which cannot be told from tokens.
    """

    def __init__(
        self,
        model: nn.Module,
        probe: Any = None,
        *,
        targets: Tensor | Mapping[str, Tensor] | None = None,
        vocabulary: int | Sequence[int] | None = None,
        length: int = 48,
        tokens: Callable[[Tensor], Any] = lambda batch: batch,
        every: int = 50,
        attention: Callable[[nn.Module, Any], Iterable[Tensor]] | None = None,
    ) -> None:
        if probe is None and vocabulary is None:
            raise BadInput("Watch", "neither a probe nor a vocabulary", "given one of them to look at the model with")
        if not is_whole(every) or every < 1:
            raise BadInput("every", every, "a whole number of steps, at least 1")
        if not is_whole(length) or length < SHORTEST:
            raise BadInput("length", length, f"a whole number of tokens, at least {SHORTEST}")
        self.half, self.targets = length // 2, _masks(targets, probe)
        self.model, self.probe, self.every, self.attention = model, probe, every, attention
        self.repeated = None
        if vocabulary is not None:
            known = _indices(vocabulary)
            self.largest = int(known.max())
            part = known[_drawn(len(known), self.half)]
            self.repeated = tokens(beside(model, torch.cat([part, part], 1)))
        self.rows: list[dict[str, float]] = []

    def __call__(self, step: int | None = None, /, **measures: Any) -> dict[str, float] | None:
        """Look, if it is time; `measures` go into the row (`loss`, `test_loss`, `accuracy` ...); one that is called
        `step`, as some loggers have it, does not, unless it is the only one."""
        step = measures.pop("step", None) if step is None else step
        if step is None:
            raise BadInput("step", "missing", "given first: watch(step, loss=loss)")
        return None if _whole_step(step) % self.every else self.look(step, **measures)

    def look(self, step: int, /, **measures: Any) -> dict[str, float]:
        """A row of the curve, now."""
        row = {**{k: measure(k, v) for k, v in measures.items()}, "step": float(_whole_step(step))}
        if self.probe is not None:
            shapes: set[str] = set()

            def take(layer: int, weights: Tensor) -> None:
                shapes.add(str(tuple(weights.shape)))
                row.update(_statistics(layer, weights, self.targets))

            self._each(self.probe, take)
            for name, mask in self.targets.items():
                if not any(column.startswith(f"{name}_") for column in row):
                    fit = f"such as fit attention in {', '.join(sorted(shapes))}"
                    raise BadInput("targets", f"in {tuple(mask.shape)}", fit)
        if self.repeated is not None:
            row |= self._induction()
        self.rows.append(row)
        return row

    def _each(self, inputs: Any, take: Callable[[int, Tensor], None]) -> None:
        """Hand the weights of every layer, with its number, to `take`, one after the other."""
        layer = -1

        def numbered(weights: Tensor) -> None:
            nonlocal layer
            layer += 1
            take(layer, weights)

        if self.attention is None:
            each_attention(self.model, inputs, numbered)
        else:
            for weights in self.attention(self.model, inputs):
                numbered(weights)
        if layer < 0:
            raise BadInput(
                "the model",
                "one without an attention call that could be seen",
                "one that calls scaled_dot_product_attention, MultiheadAttention or a softmax over (n, heads, rows, "
                "columns); else give Watch a function `attention`",
            )

    def _induction(self) -> dict[str, float]:
        row: dict[str, float] = {}

        def take(layer: int, weights: Tensor) -> None:
            if weights.shape[-1] == weights.shape[-2] >= 2 * self.half:  # not attention to something else
                row.update(_named("induction", layer, induction_score(weights, self.half)))
            if self.probe is None:
                row.update(_statistics(layer, weights, {}))

        if too_far := self._beyond():
            raise self._no_such(too_far)
        try:
            self._each(self.repeated, take)
        except IndexError as e:  # what an embedding says of an index beyond its table
            raise self._no_such(str(e)) from e
        return row

    def _beyond(self) -> str:
        """What a model's configuration says against the sequences that induction is tested on; on a GPU an index
        beyond an embedding ends the process."""
        config = getattr(unwrapped(self.model), "config", None)
        for name, needed in (("vocab_size", self.largest + 1), ("max_position_embeddings", 2 * self.half)):
            known: Any = getattr(config, name, None)
            if is_whole(known) and 0 < known < needed:  # -1 where there is no limit
                return f"its {name} is {known}"
        return ""

    def _no_such(self, why: str) -> Impossible:
        return Impossible(
            f"{type(self.model).__name__} has no such token or position: induction is tested on {2 * self.half} "
            f"tokens with indices up to {self.largest}; `vocabulary` and `length` must fit the model ({why})"
        )

    @property
    def curve(self) -> pd.DataFrame:
        """What was seen, a row a look."""
        return pd.DataFrame(self.rows)

    def forecast(self, **options: Any) -> Forecast:
        """When will the run leave its plateau? Options are those of `Forecaster`."""
        return Forecaster(**options).told(self.curve)

    def load(self, directory: str | Path, before: int | None = None) -> Self:
        """Take up the rows that were saved there, where a training is resumed: all, or those before the step at which
        it goes on. Forecasts need them, and the same probe as before."""
        curve = _written_by_a_watch(directory).curve()
        if curve is None:
            raise BadInput("directory", str(directory), "one that a Watch wrote; there is no curve in this one")
        known = curve if before is None else curve[curve["step"] < _whole_step(before)]
        rows = ({str(k): float(v) for k, v in row.items()} for row in known.to_dict("records"))
        self.rows = [{sys.intern(k): v for k, v in row.items() if not math.isnan(v)} for row in rows]
        return self

    def save(self, directory: str | Path) -> Path:
        """Write the curve where `unstuck forecast`, `report` and plots find it. Rows that an earlier watch wrote there
        stay, up to the first step of this one: so a training that was resumed goes on."""
        if not self.rows:
            raise Impossible("the watch has not looked yet, so there is nothing to save: call it with a step first")
        run = _written_by_a_watch(directory)
        run.path.mkdir(parents=True, exist_ok=True)
        curve, before = self.curve, run.curve()
        if "loss" in curve and "test_loss" not in curve:  # what tables and plots of runs look for
            known = curve["train_loss"] if "train_loss" in curve else curve["loss"]
            curve = curve.assign(train_loss=known.fillna(curve["loss"]))
        if before is not None:
            curve = pd.concat([before[before["step"] < curve["step"].min()], curve], ignore_index=True)
        run.write_curve(curve)
        last = int(curve["step"].iloc[-1]) if len(curve) else 0
        run.write_watched(type(self.model).__name__, last)
        return run.path


def _written_by_a_watch(directory: str | Path) -> RunDirectory:
    run = RunDirectory(Path(directory))
    status = run.status()
    if status is not None and status.get("state") != "watched":
        raise BadInput("directory", str(directory), "a new one, or one that a Watch wrote; this one holds a run")
    return run


def _whole_step(step: Any) -> int:
    if isinstance(step, str) or (whole := measure("step", step)) % 1:
        raise BadInput("step", step, "a whole number")
    return int(whole)


def _indices(vocabulary: Any) -> Tensor:
    """The different token indices of a vocabulary: a number of them, or the indices themselves."""
    try:
        known = torch.arange(int(vocabulary)) if isinstance(vocabulary, Integral) else torch.as_tensor(vocabulary)
        known = known.flatten().long().unique()
    except (TypeError, ValueError, RuntimeError) as e:
        raise BadInput("vocabulary", vocabulary, "a number of tokens, or a list of their indices") from e
    if len(known) < 2:
        raise BadInput("vocabulary", vocabulary, "of at least 2 tokens")
    return known


def _masks(targets: Any, probe: Any) -> dict[str, Tensor]:
    """What is watched, by the name of its columns."""
    if targets is None:
        return {}
    named = targets if isinstance(targets, Mapping) else {LINKS[0]: targets}
    if not {LINKS[0]} <= set(named) <= set(LINKS):
        raise BadInput("targets", ", ".join(map(str, named)) or "empty", f"masks named {' and '.join(LINKS)}")
    return {name: _mask(mask, probe) for name, mask in named.items()}


def _mask(targets: Any, probe: Any) -> Tensor:
    wanted = "True or False in (n, columns) or (n, rows, columns), beside a probe of n sequences"
    if probe is None:
        raise BadInput("targets", "given without a probe", wanted)
    mask = torch.as_tensor(targets)
    if mask.dtype != torch.bool or mask.dim() not in (2, 3):
        raise BadInput("targets", f"{mask.dtype} in {tuple(mask.shape)}", wanted)
    if not mask.any():
        raise BadInput("targets", "False everywhere", "True for the tokens that are to be attended")
    return mask


def _drawn(among: int, length: int) -> Tensor:
    """Random indices, (INDUCTION, length): in a sequence each once, as far as there are so many."""
    rng = torch.Generator().manual_seed(0)
    if among < length:
        return torch.randint(among, (INDUCTION, length), generator=rng)
    return torch.stack([torch.randperm(among, generator=rng)[:length] for _ in range(INDUCTION)])


def _named(name: str, layer: int, values: Tensor) -> dict[str, float]:
    return {sys.intern(f"{name}_{layer}_{head}"): value for head, value in enumerate(values.tolist())}


def _statistics(layer: int, weights: Tensor, targets: Mapping[str, Tensor]) -> dict[str, float]:
    w = weights.float()
    columns = w.shape[-1]
    # Over that of uniform attention on what each row may look at: as in our own runs, 1 when uniform.
    # A row may look at what some row like it looks at, in any sequence or head, and somebody in its own sequence: half
    # precision rounds small weights to 0, and padding is nowhere looked at. Where it is nothing, nothing is spread.
    looked = w > 0
    visible = (looked.flatten(0, 1).any(0) & looked.any(1).any(1)[:, None]).sum(-1).clamp_min(1)  # (n, rows)
    entropy = torch.special.entr(w).sum((-1, -2)).sum(0) / visible.float().log().sum().clamp_min(1e-9)
    rows = torch.arange(columns - w.shape[-2], columns, device=w.device)
    distance = (w * (rows[:, None] - torch.arange(columns, device=w.device)).abs()).sum(-1).mean((0, 2))
    out = _named("entropy", layer, entropy) | _named("distance", layer, distance)
    for name, target in targets.items():
        if len(target) not in (1, len(w)) or target.shape[1:] not in (w.shape[-1:], w.shape[-2:]):
            continue
        mask, seen_from = target.to(w.device), w
        if mask.dim() == 2:  # from the last position
            mask, seen_from = mask[:, None], w[:, :, -1:]
        mask = mask.expand(len(w), -1, -1)
        asked = mask.any(-1)[:, None].float()  # rows that have a target
        out |= _named(name, layer, ((seen_from * mask[:, None]).sum(-1) * asked).sum((0, 2)) / asked.sum((0, 2)))
    return out


def induction_score(weights: Tensor, half: int | None = None) -> Tensor:
    """Of each head, (heads,): on a sequence that ends in twice the same `half` tokens (half of it, if not given), the
    attention of the second time to the token that came after the same token the first time.

    Examples:
        >>> perfect = torch.zeros(1, 1, 6, 6)
        >>> perfect[0, 0, [3, 4, 5], [1, 2, 3]] = 1.0
        >>> induction_score(perfect).tolist()
        [1.0]
    """
    columns = weights.shape[-1]
    half = math.ceil(columns / 2) if half is None else half
    rows = torch.arange(columns - half, columns, device=weights.device)
    return weights[:, :, rows, rows - half + 1].float().mean((0, 2))
