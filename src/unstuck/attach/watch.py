"""`Watch`: two lines in your training loop give a curve like those of our own runs."""

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor, nn

from unstuck.attach.capture import beside, each_attention, undisturbed, unwrapped
from unstuck.attach.inputs import indices, mark, masks, own_weights
from unstuck.attach.language import repeated_row, text_row, token_indices
from unstuck.columns import MEASURES, STEP, TEST_LOSS, TRAIN_LOSS, Row, head_columns, place, selectivity_columns
from unstuck.curve import Curve
from unstuck.errors import BadInput, InvalidCombination
from unstuck.forecast import Forecast, Forecaster
from unstuck.probes.attention import attention_along, attention_to, distance, row_entropy, selectivity, without_sink
from unstuck.probes.induction import head_scores, previous_token
from unstuck.scalars import is_whole, measure
from unstuck.store.store import RunDirectory

INDUCTION = 16  # repeated sequences that test for induction
SHORTEST = 6  # length of such a sequence; with 4 the previous token is also the induction target


class Watch:
    """Measures a model's attention on a fixed batch every so many steps.

        watch = Watch(model, probe, vocabulary=256)
        for batch in batches:
            ...
            step += 1
            watch(step, loss=loss)

    Steps count on over all epochs. Make and call it in the thread that trains: while it measures, dropout is off and
    random states are put aside, and a training step in another thread at that time would change. A call from another
    thread than the one that made it is refused.

    `probe` is an input of the model: a tensor, a tuple of arguments or a mapping. `targets` marks positions with True:
    in (n, columns), attended from the last position, or in (n, rows, columns); layers whose attention has another
    shape, such as cross-attention, are skipped. For a task that is learnt in two steps give both: `{"attention": mask,
    "copying": mask}`, where the answer is found and what has to be copied there first. With `vocabulary`, a language
    model is also tested for induction on random sequences of `length` whose second half repeats the first; give a list
    of indices if your data use only some of them, since a model knows nothing of the others. `tokens` makes the model's
    input from such a batch if that is more than the tensor itself. `attention` replaces the capture of weights: a
    function of model and inputs that gives the weights of each layer, (n, heads, rows, columns), in a list or as an
    iterator. It is called without dropout or gradients.

    With `vocabulary`, the random sequences give each head's scores `induction`, `duplicate_token` and
    `previous_token`, and `copy_advantage`: the loss of the first half minus that of the second, in nats a token. With
    a probe of token indices (a tensor (n, T) of whole numbers, or a mapping with `input_ids`), `previous_token` is
    measured on the probe instead, and the probe gives `in_context_score`: by how many nats a token is easier to predict
    late in its sequence than early, if it has at least 9 tokens. The two losses need logits of the next token at every
    position, (n, T, vocabulary): as the model's output, as `logits` in it, or in a tuple. Without them, and with
    `attention`, which shows no output, the two are left out.

    The weights of one layer are in memory at a time, n * heads * rows * columns numbers of four bytes, and about three
    times that while they are measured: keep the probe small, and without padding, which counts as tokens.
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
        if not isinstance(model, nn.Module):
            raise BadInput("model", model, "a torch.nn.Module")
        if probe is None and vocabulary is None:
            raise BadInput("Watch", "neither a probe nor a vocabulary", "one with a probe, a vocabulary or both")
        if not is_whole(every) or every < 1:
            raise BadInput("every", every, "a whole number of steps, at least 1")
        if not is_whole(length) or length < SHORTEST:
            raise BadInput("length", length, f"a whole number of tokens, at least {SHORTEST}")
        self.half, self.targets = length // 2, masks(targets, probe)
        self.model, self.probe, self.every, self.attention = model, probe, every, attention
        self.repeated = self.text = None
        if vocabulary is not None:
            known = indices(vocabulary)
            self.largest = int(known.max())
            part = known[_drawn(len(known), self.half)]
            self.random = torch.cat([part, part], 1)  # (sequences, length)
            self.repeated = tokens(beside(model, self.random))
            self.text = token_indices(probe)
        self.seen_with = mark(self.probe, self.targets, self.repeated)  # rows of another probe are not comparable
        self.rows: list[Row] = []
        self.warned = False
        self.thread = threading.get_ident()

    def __call__(self, step: int | None = None, /, **measures: Any) -> dict[str, float] | None:
        """Measure, if a measurement is due. `measures` (`loss`, `test_loss`, `accuracy` ...) go into the row. The step
        is the first argument; `step=...` counts only without it."""
        step = measures.pop("step", None) if step is None else step
        if step is None:
            raise BadInput("step", "missing", "given first: watch(step, loss=loss)")
        if not self.due(step):
            return None
        if behind := self._behind(step):  # not a reason to stop training
            if not self.warned:
                warnings.warn(f"{behind}; nothing is measured", UserWarning, stacklevel=2)
            self.warned = True
            return None
        return self.look(step, **measures)

    def due(self, step: int) -> bool:
        """Is a measurement due at this step, and not made yet? Several batches may make one optimiser step."""
        return _whole_step(step) % self.every == 0 and not (self.rows and self.rows[-1][STEP] == step)

    def look(self, step: int, /, **measures: Any) -> dict[str, float]:
        """Measure now: a row of the curve."""
        if threading.get_ident() != self.thread:
            here = threading.current_thread().name
            raise InvalidCombination(
                f"this watch is called from the thread {here!r}, and was made in another: make and call it in the "
                "thread that trains, since a measurement beside a training step would change the step"
            )
        if behind := self._behind(step):
            raise InvalidCombination(behind)
        row = {**{k: measure(k, v) for k, v in measures.items()}, STEP: float(_whole_step(step))}
        if self.probe is not None:
            row |= self._probed()
        if self.repeated is not None:
            row |= self._induction()
        self.rows.append(row)
        return row

    def _probed(self) -> Row:
        """What is measured on the probe."""
        row: Row = {}
        shapes: set[str] = set()

        def take(layer: int, weights: Tensor) -> None:
            shapes.add(str(tuple(weights.shape)))
            row.update(_measured(layer, weights, self.targets))
            if self.text is not None and _is_self_attention(weights, self.text.shape[1]):
                row.update(_named("previous_token", layer, previous_token(weights)))

        what = "the probe, which must be what it takes: a tensor, a tuple or a mapping"
        output = self._each(self.probe, take, what)
        for name, mask in self.targets.items():
            if not any(column.startswith(f"{name}_") for column in row):
                fit = f"such as fit attention in {', '.join(sorted(shapes))}"
                raise BadInput("targets", f"in {tuple(mask.shape)}", fit)
        return row if self.text is None else row | text_row(output, self.text)

    def _behind(self, step: int) -> str:
        """What is wrong with a step before the last measurement."""
        if not self.rows or _whole_step(step) >= self.rows[-1][STEP]:
            return ""
        return f"step {step} comes after {self.rows[-1][STEP]:.0f}, but steps must count on over all epochs"

    def _each(self, inputs: Any, take: Callable[[int, Tensor], None], what: str) -> Any:
        """Pass the weights of every layer, with its number, to `take`, one after the other; returns the model's output,
        None if the weights come from a user's function."""
        layer, output = -1, None

        def numbered(weights: Tensor) -> None:
            nonlocal layer
            layer += 1
            take(layer, weights)

        try:
            if self.attention is None:
                output = each_attention(self.model, inputs, numbered)
            else:
                model = unwrapped(self.model)
                with undisturbed(model):
                    for weights in self.attention(model, beside(model, inputs)):
                        numbered(own_weights(weights))
        except (BadInput, torch.OutOfMemoryError):
            raise
        except (AssertionError, AttributeError, IndexError, RuntimeError, TypeError, ValueError) as e:
            why = f"{type(e).__name__}: {(str(e).strip() or 'no reason given').splitlines()[0]}"
            raise InvalidCombination(f"{type(self.model).__name__} could not be run on {what} ({why})") from e
        if layer < 0:
            raise BadInput(
                "the model",
                "one without a known attention call",
                "one that calls scaled_dot_product_attention, MultiheadAttention or a softmax over (n, heads, rows, "
                "columns); else give Watch a function `attention`",
            )
        return output

    def _induction(self) -> Row:
        """What is measured on random sequences that repeat themselves."""
        row: Row = {}

        def take(layer: int, weights: Tensor) -> None:
            if _is_self_attention(weights, 2 * self.half):
                scores = head_scores(without_sink(weights), self.half)
                if self.text is None:
                    scores["previous_token"] = previous_token(weights)
                for measure, values in scores.items():
                    row.update(_named(measure, layer, values))
            if self.probe is None:
                row.update(_measured(layer, weights, {}))

        what = f"{2 * self.half} tokens with indices up to {self.largest}, on which induction is tested: `vocabulary`, "
        what += "`length` and `tokens` must fit it"
        if too_far := self._beyond():
            raise InvalidCombination(f"{type(self.model).__name__} could not be run on {what} ({too_far})")
        output = self._each(self.repeated, take, what)
        if not _has(row, "induction"):
            raise BadInput(
                "vocabulary", "given", f"left out: no layer attends from {2 * self.half} tokens to just these"
            )
        return row | repeated_row(output, self.random)

    def _beyond(self) -> str:
        """Why, by its configuration, a model cannot take the sequences of the induction test; on a GPU an index beyond
        an embedding ends the process."""
        config = getattr(unwrapped(self.model), "config", None)
        for name, needed in (("vocab_size", self.largest + 1), ("max_position_embeddings", 2 * self.half)):
            known: Any = getattr(config, name, None)
            if is_whole(known) and 0 < known < needed:  # -1 where there is no limit
                return f"its {name} is {known}"
        return ""

    @property
    def curve(self) -> Curve:
        """What was measured so far, one row per measurement."""
        return Curve.from_rows(self.rows)

    def forecast(self, **options: Any) -> Forecast:
        """When will the run leave its plateau? Options are those of `Forecaster`."""
        return Forecaster(**options).predict(self.curve)

    def load(self, directory: str | Path, before: int | None = None) -> Self:
        """Load the rows that were saved there when a training is resumed: all, or those before the step from which it
        continues. Forecasts need them, and the same probe as before."""
        curve = self._written_by_a_watch(directory).curve()
        if curve is None:
            raise BadInput("directory", str(directory), "one that a Watch wrote; there is no curve in this one")
        known = curve if before is None else curve.rows(curve.steps < _whole_step(before))
        rows = ({str(k): float(v) for k, v in row.items()} for row in known.to_frame().to_dict("records"))
        self.rows = [{sys.intern(k): v for k, v in row.items() if v == v} for row in rows]
        return self

    def save(self, directory: str | Path) -> Path:
        """Write the curve where `unstuck forecast`, `report` and plots find it. Rows that an earlier watch wrote there
        stay, up to the first step of this one, so that a resumed training continues its curve."""
        if not self.rows:
            raise InvalidCombination(
                "nothing has been measured yet, so there is nothing to save: call the watch with a step first"
            )
        run = self._written_by_a_watch(directory)
        run.path.mkdir(parents=True, exist_ok=True)
        curve, before = self.curve.to_frame(), run.curve()
        if "loss" in curve and TEST_LOSS not in curve:  # the name that tables and plots of runs use
            known = curve[TRAIN_LOSS] if TRAIN_LOSS in curve else curve["loss"]
            curve[TRAIN_LOSS] = known.fillna(curve["loss"])
        if before is not None:
            earlier = before.rows(before.steps < curve["step"].min()).to_frame()
            curve = pd.concat([earlier, curve], ignore_index=True)
        run.write_curve(curve)
        last = int(curve["step"].iloc[-1]) if len(curve) else 0
        run.write_watched(type(self.model).__name__, last, self.seen_with)
        return run.path

    def _written_by_a_watch(self, directory: str | Path) -> RunDirectory:
        """A directory for these rows: new, or written by a watch with the same probe."""
        run = RunDirectory(Path(directory))
        if run.path.exists() and not run.path.is_dir():
            raise BadInput("directory", str(directory), "a directory; this is a file")
        status = run.status() or {"state": "watched"}
        if status.get("state") != "watched":
            raise BadInput("directory", str(directory), "a new one, or one that a Watch wrote; this one holds a run")
        if status.get("probe", self.seen_with) != self.seen_with:
            raise BadInput(
                "directory",
                str(directory),
                "one whose rows were measured with this probe, these targets and this vocabulary, since others cannot "
                "be compared; keep the probe beside the checkpoint, or save to another directory",
            )
        return run


def _whole_step(step: Any) -> int:
    if isinstance(step, str) or (whole := measure("step", step)) % 1:
        raise BadInput("step", step, "a whole number")
    return int(whole)


def _named(measure: str, layer: int, values: Tensor) -> Row:
    """A number for each head, by the name of its column; the names are interned, since every row repeats them."""
    return {sys.intern(name): value for name, value in head_columns(measure, layer, values.tolist()).items()}


def _has(row: Row, measure: str) -> bool:
    return any(found[0] == measure for column in row if (found := place(column)))


def _is_self_attention(weights: Tensor, least: int) -> bool:
    """Are these weights of at least so many tokens that attend to each other, perhaps with a sink at the end?"""
    rows, columns = weights.shape[-2:]
    return rows >= least and columns - rows in (0, 1)


def _measured(layer: int, weights: Tensor, targets: Mapping[str, Tensor]) -> Row:
    """Entropy and distance of each head of a layer, and its attention to the targets that have the layer's shape."""
    w = weights.float()
    out = _named("row_entropy", layer, row_entropy(w))
    w = without_sink(w)
    out |= _named("distance", layer, distance(w))
    for name, target in targets.items():
        if len(target) not in (1, len(w)) or target.shape[1:] not in (w.shape[-1:], w.shape[-2:]):
            continue
        mask = target.to(w.device).expand(len(w), *target.shape[1:])
        seen = w[:, :, -1] if mask.dim() == 2 else w
        out |= _named(name, layer, attention_to(seen, mask) if mask.dim() == 2 else attention_along(seen, mask))
        if name == MEASURES["attention"]:
            out |= selectivity_columns(layer, selectivity(seen, mask).tolist())
    return out


def _drawn(among: int, length: int) -> Tensor:
    """Random indices, (INDUCTION, length); without repetition in a sequence if there are enough of them."""
    rng = torch.Generator().manual_seed(0)
    if among < length:
        return torch.randint(among, (INDUCTION, length), generator=rng)
    return torch.stack([torch.randperm(among, generator=rng)[:length] for _ in range(INDUCTION)])
