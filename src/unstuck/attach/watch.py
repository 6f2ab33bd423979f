"""`Watch`: two lines in your training loop give a curve like those of our own runs."""

import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from unstuck.attach.capture import beside, can_run, each_layer, undisturbed, unwrapped
from unstuck.attach.inputs import indices, mark, masks, own_weights, shapes_of
from unstuck.attach.language import logits_of, repeated_row, text_row, token_indices
from unstuck.attach.measures import LayerMeasures
from unstuck.attach.saving import load_rows, save_rows
from unstuck.attach.state import State, state_of
from unstuck.attach.weights import Blocks, not_tokens_of, whole
from unstuck.columns import STEP, Row, place
from unstuck.curve import Curve
from unstuck.errors import BadInput, InvalidCombination
from unstuck.forecast import Forecast, Forecaster, Outcome
from unstuck.forecast.features import UNCALIBRATED
from unstuck.scalars import is_whole, measure

INDUCTION = 16  # repeated sequences that test for induction
SHORTEST = 6  # length of such a sequence; with 4 the previous token is also the induction target
log = logging.getLogger("unstuck")


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

    It measures once when it is made, so that what cannot be measured is refused before training; if the model has not
    changed until the first step that is measured, this is its row. If a measurement fails later, a warning says so, and
    training goes on.

    With `vocabulary`, the random sequences give each head's scores `induction`, `duplicate_token` and
    `previous_token`, and `copy_advantage`: the loss of the first half minus that of the second, in nats a token. With
    a probe of token indices (a tensor (n, T) of whole numbers, or a mapping with `input_ids`), `previous_token` is
    measured on the probe instead, and the probe gives `in_context_score`: by how many nats a token is easier to predict
    late in its sequence than early, if it has at least 9 tokens. The two losses need logits of the next token at every
    position, (n, T, vocabulary): as the model's output, as `logits` in it, or in a tuple. Without them, and with
    `attention`, which shows no output, the two are left out.

    Weights of fast kernels are computed some rows at a time, in a few hundred megabytes at most; those of a softmax in
    the model are there as a whole, n * heads * rows * columns numbers of four bytes. Keep the probe small, and without
    padding, which counts as tokens.
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
        self.targets = masks(targets, probe)
        if probe is None and vocabulary is None:
            raise BadInput("Watch", "neither a probe nor a vocabulary", "one with a probe, a vocabulary or both")
        if not is_whole(every) or every < 1:
            raise BadInput("every", every, "a whole number of steps, at least 1")
        if not is_whole(length) or length < SHORTEST:
            raise BadInput("length", length, f"a whole number of tokens, at least {SHORTEST}")
        self.half = length // 2
        self.model, self.probe, self.every, self.attention = model, probe, every, attention
        self.repeated = self.text = None
        self.logits: int | None = None  # of so many tokens at every position, where the output has them
        if vocabulary is not None:
            known = indices(vocabulary)
            self.largest = int(known.max())
            part = known[_drawn(len(known), self.half)]
            self.random = torch.cat([part, part], 1)  # (sequences, length)
            self.tokens, self.repeated = tokens, tokens(beside(model, self.random))
            self.text = token_indices(probe)
        self.seen_with = mark(self.probe, self.targets, self.repeated)  # rows of another probe are not comparable
        self.rows: list[Row] = []
        self.warned = self.failed = False
        self.thread = threading.get_ident()
        self.tried = self.measure() if can_run(model) else {}  # what cannot be measured is said before training begins
        self._tried_at = self._state() if self.tried else None

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
        self._check_thread()
        known = {name: measure(name, value) for name, value in measures.items()}
        try:
            return self.look(step, **known)
        except Exception as e:  # such as a lack of memory: not a reason to stop training either
            if not self.failed:
                log.warning("nothing is measured at step %s, and training goes on: %s", step, e)
            self.failed = True
            return None

    def due(self, step: int) -> bool:
        """Is a measurement due at this step, and not made yet? Several batches may make one optimiser step."""
        return _whole_step(step) % self.every == 0 and not (self.rows and self.rows[-1][STEP] == step)

    def look(self, step: int, /, **measures: Any) -> dict[str, float]:
        """Measure now: a row of the curve."""
        self._check_thread()
        if behind := self._behind(step):
            raise InvalidCombination(behind)
        row = {**{k: measure(k, v) for k, v in measures.items()}, STEP: float(_whole_step(step)), **self._measured()}
        self.rows.append(row)
        return row

    def _measured(self) -> Row:
        """What is measured now, or, at the first step, what was when the watch was made, if the model is the same."""
        then, self._tried_at = self._tried_at, None
        return self.tried if then is not None and then == self._state() else self.measure()

    def _state(self) -> tuple[str, State] | None:
        """Equal at two moments only if a measurement shows the same; None where that is not known."""
        found = None if self.attention is not None else state_of(self.model)
        return None if found is None else (mark(self.probe, self.targets, self.repeated), found)

    def _check_thread(self) -> None:
        if threading.get_ident() != self.thread:
            here = threading.current_thread().name
            raise InvalidCombination(
                f"this watch is called from the thread {here!r}, and was made in another: make and call it in the "
                "thread that trains, since a measurement beside a training step would change the step"
            )

    def measure(self) -> Row:
        """What is measured now, without a step; it is not kept."""
        row: Row = {}
        if self.probe is not None:
            row |= self._probed()
        if self.repeated is not None:
            row |= self._induction()
        return row

    def _probed(self) -> Row:
        """What is measured on the probe."""
        row: Row = {}
        shapes: set[str] = set()
        least = 0 if self.text is None else self.text.shape[1]

        def take(layer: int, blocks: Blocks) -> None:
            measures = LayerMeasures(self.targets, previous=self.text is not None, least=least).add(blocks)
            shapes.add(str(measures.shape))
            row.update(measures.row(layer))

        what = "the probe, which must be what it takes: a tensor, a tuple or a mapping"
        output = self._each(self.probe, take, what)
        for name, mask in self.targets.items():
            if not any(column.startswith(f"{name}_") for column in row):
                fit = (
                    f"such as fit a probe in {shapes_of(self.probe)}, whose attention is in {', '.join(sorted(shapes))}"
                )
                raise BadInput("targets", f"in {tuple(mask.shape)}", fit)
        return row if self.text is None else row | text_row(output, self.text)

    def _behind(self, step: int) -> str:
        """What is wrong with a step before the last measurement."""
        if not self.rows or _whole_step(step) >= self.rows[-1][STEP]:
            return ""
        return f"step {step} comes after {self.rows[-1][STEP]:.0f}, but steps must count on over all epochs"

    def _each(self, inputs: Any, take: Callable[[int, Blocks], None], what: str) -> Any:
        """Pass every layer, with its number, to `take`, one after the other; returns the model's output, None if the
        weights come from a user's function."""
        layers, output = 0, None

        def counted(layer: int, blocks: Blocks) -> None:
            nonlocal layers
            layers = max(layers, layer + 1)
            take(layer, blocks)

        try:
            if self.attention is None:
                output = each_layer(self.model, inputs, counted)
            else:
                model = unwrapped(self.model)
                with undisturbed(model):
                    for layer, weights in enumerate(self.attention(model, beside(model, inputs))):
                        own = own_weights(weights)
                        counted(layer, whole(own, *not_tokens_of(own)))
        except (BadInput, torch.OutOfMemoryError):
            raise
        except Exception as e:  # a model may raise anything
            why = f"{type(e).__name__}: {(str(e).strip() or 'no reason given').splitlines()[0]}"
            raise InvalidCombination(f"{type(self.model).__name__} could not be run on {what} ({why})") from e
        if not layers:
            raise BadInput(
                "the model",
                "one without a known attention call",
                "one that calls scaled_dot_product_attention, flex_attention, MultiheadAttention, or a softmax over "
                "(n, heads, rows, columns) or (n * heads, rows, columns) whose result is multiplied by values; else "
                "give a function `attention`",
            )
        return output

    def _induction(self) -> Row:
        """What is measured on random sequences that repeat themselves."""
        row: Row = {}
        alone, previous = self.probe is None, self.text is None

        def take(layer: int, blocks: Blocks) -> None:
            measures = LayerMeasures({}, half=self.half, previous=previous, least=2 * self.half).add(blocks)
            row.update(measures.row(layer, general=alone))

        what = f"{2 * self.half} tokens with indices up to {self.largest}, on which induction is tested: `vocabulary`, "
        what += "`length` and `tokens` must fit it"
        if too_far := self._beyond():
            raise InvalidCombination(f"{type(self.model).__name__} could not be run on {what} ({too_far})")
        output = self._each(self.repeated, take, what)
        if not _has(row, "induction"):
            raise BadInput(
                "vocabulary", "given", f"left out: no layer attends from {2 * self.half} tokens to just these"
            )
        logits = logits_of(output, self.random)
        self.logits = None if logits is None else logits.shape[2]
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
        """When will the run leave its plateau? Options are those of `Forecaster`. Too early to tell where nothing is
        measured yet."""
        if not self.rows:
            return Forecast(Outcome.TOO_EARLY, 0.0, UNCALIBRATED)
        return Forecaster(**options).predict(self.curve)

    def load(self, directory: str | Path, before: int | None = None) -> Self:
        """Load the rows that were saved there when a training is resumed: all, or those before the step from which it
        continues. Forecasts need them, and the same probe as before."""
        self.rows = load_rows(directory, self.seen_with, None if before is None else _whole_step(before))
        return self

    def save(self, directory: str | Path) -> Path:
        """Write the curve where `unstuck forecast`, `report` and plots find it. Rows that an earlier watch wrote there
        stay, up to the first step of this one, so that a resumed training continues its curve."""
        if not self.rows:
            raise InvalidCombination(
                "nothing has been measured yet, so there is nothing to save: call the watch with a step first"
            )
        return save_rows(directory, self.rows, type(self.model).__name__, self.seen_with)


def _whole_step(step: Any) -> int:
    if isinstance(step, str) or (whole := measure("step", step)) % 1:
        raise BadInput("step", step, "a whole number")
    return int(whole)


def _has(row: Row, measure: str) -> bool:
    return any(found[0] == measure for column in row if (found := place(column)))


def _drawn(among: int, length: int) -> Tensor:
    """Random indices, (INDUCTION, length); without repetition in a sequence if there are enough of them."""
    rng = torch.Generator().manual_seed(0)
    if among < length:
        return torch.randint(among, (INDUCTION, length), generator=rng)
    return torch.stack([torch.randperm(among, generator=rng)[:length] for _ in range(INDUCTION)])
