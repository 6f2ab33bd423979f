"""How the columns of a curve are named.

A curve is stored and exchanged as a table. Its columns are

    step                                 of the optimiser
    test_loss, train_accuracy, ...       SET_MEASURE, and any other number that was logged
    attn_0_2, copy_0_2, ...              MEASURE_LAYER_HEAD: a measure of one head (`MEASURES`), counted from 0
    group1_0_2, readout_group1_0_2       attention of a head to a group of positions, from all rows or the last one
    align_2_1                            HEAD_GROUP: <V_head, A_group> / |A_group|², groups counted from 1
    kl_1, kl_2, ...                      KL of the truncated truths A*_{1:i} to the model
    ref_1, ref_2, ... and context_4      KL to the predictions of other runs, and to models of a restricted context

Tables of earlier versions have `entropy_L_H` for two measures: in our runs the entropy at the read-out position, in
those of a `Watch` the mean over all rows. Reading gives them today's names.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, float]
Source = Literal["run", "watch", "foreign"]

#: Columns of the whole model, by name.
STEP, EVALUATED, REPETITION = "step", "evaluated", "repetition"
TRAIN_LOSS, TEST_LOSS, CLEAN_LOSS, LIKE_LOSS = "train_loss", "test_loss", "clean_loss", "like_loss"
TRAIN_ACCURACY, TEST_ACCURACY = "train_accuracy", "test_accuracy"
CLEAN_ACCURACY, LIKE_ACCURACY = "clean_accuracy", "like_accuracy"
EXCESS_LOSS, GRAD_NORM, SPECIALISATION = "excess_loss", "grad_norm", "specialisation"
COPY_ADVANTAGE, IN_CONTEXT_SCORE = "copy_advantage", "in_context_score"
#: Beside the copying advantage: at the end of the context, after text, and with the second pass in reverse.
COPY_IN_TEXT, COPY_BACKWARDS = "copy_advantage_in_text", "copy_advantage_backwards"
RUNGS = "kl_1, kl_2, ..."  # as a message asks for them
#: What is measured of a head, in the field's words, and how its columns begin.
MEASURES = {
    "attention": "attn",  # from the read-out position, or from all questions of a sequence, to the relevant tokens
    "copying": "copy",  # from a value to its key
    "selectivity": "selectivity",  # attention to the relevant tokens, in standard deviations above chance
    "induction": "induction",  # to the token that came after the same token the last time
    "previous_token": "previous_token",  # to the token before
    "duplicate_token": "duplicate_token",  # to the same token, the last time
    "readout_entropy": "readout_entropy",  # of attention from the read-out position, 1 where uniform
    "row_entropy": "row_entropy",  # mean over all rows, 1 where uniform
    "distance": "distance",  # in tokens, mean over all rows
}
OLD_ENTROPY = "entropy"  # how the columns of either entropy began
NEW_ENTROPY = {"run": "readout_entropy", "watch": "row_entropy", "foreign": "row_entropy"}

NUMBER = "(0|[1-9][0-9]*)"
GROUP = re.compile("(?:readout_)?group[1-9][0-9]*")
_PREFIXES = "|".join([*MEASURES.values(), OLD_ENTROPY, GROUP.pattern])
_HEAD = re.compile(f"({_PREFIXES})_{NUMBER}_{NUMBER}")
ALIGNMENT = re.compile(f"align_{NUMBER}_{NUMBER}")
_LOSS = re.compile(r"loss(?![a-z_]*(scale|weight))")  # the scale and the weight of a loss are not losses
#: Names of a loss, the loss on held-out data first.
LOSSES = (TEST_LOSS, "eval_loss", "val_loss", "eval/loss", "val/loss", "loss", TRAIN_LOSS, "train/loss")
ACCURACIES = (TEST_ACCURACY, "eval_accuracy", "val_accuracy", "accuracy", TRAIN_ACCURACY)


def head_columns(measure: str, layer: int, values: Iterable[float]) -> Row:
    """A number for each head of a layer, by the names of its columns.

    Examples:
        >>> head_columns("attention", 0, [0.25, 0.5])
        {'attn_0_0': 0.25, 'attn_0_1': 0.5}
    """
    prefix = MEASURES.get(measure, measure)
    return {f"{prefix}_{layer}_{head}": float(value) for head, value in enumerate(values)}


def selectivity_columns(layer: int, values: Iterable[float]) -> Row:
    """How far the attention of each head of a layer lies above chance; none for a head of which that is not defined."""
    return {name: z for name, z in head_columns("selectivity", layer, values).items() if z == z}


def at_readout(measure: str) -> str:
    """The measure of a group from the read-out position alone."""
    return f"readout_{measure}"


def alignment_columns(alignment: Sequence[Sequence[float]]) -> Row:
    """A number for each head and group."""
    return {f"align_{h}_{g + 1}": float(a) for h, row in enumerate(alignment) for g, a in enumerate(row)}


def reference_columns(distances: Iterable[float]) -> Row:
    """KL to the predictions of each reference run."""
    return {f"ref_{i + 1}": float(x) for i, x in enumerate(distances)}


def measure_column(sequences: str, measure: str) -> str:
    """A measure on a set of sequences: `test_loss`, `clean_accuracy`, ..."""
    return f"{sequences}_{measure}"


def deciding_column(measure: str) -> str:
    """The column of the measure that decides emergence."""
    return measure if measure == COPY_ADVANTAGE else measure_column("test", measure)


def set_columns(measure: str, values: Mapping[str, float]) -> Row:
    """A measure on each set of sequences, by the names of its columns."""
    return {measure_column(sequences, measure): value for sequences, value in values.items()}


def context_columns(contexts: Iterable[int]) -> dict[str, str]:
    """New names of the references where they are models of a restricted context: {"ref_1": "context_4"}."""
    return {f"ref_{i + 1}": f"context_{context}" for i, context in enumerate(contexts)}


def predictor(column: str) -> tuple[str, int]:
    """The predictor that a KL refers to: `("truth", 2)` is A*_{1:2}, `("context", 4)` a model that sees 4 tokens."""
    name, _, number = column.rpartition("_")
    return {"kl": "truth", "context": "context"}[name], int(number)


def pattern(measure: str) -> str:
    """The form of a measure's columns, for messages: `attn_L_H`."""
    return f"{MEASURES.get(measure, measure)}_L_H"


def place(column: str) -> tuple[str, int, int] | None:
    """Measure, layer and head of a column; None for a column that is not about a head.

    Examples:
        >>> place("attn_0_2"), place("readout_group1_3_0"), place("kl_1")
        (('attention', 0, 2), ('readout_group1', 3, 0), None)
    """
    found = _HEAD.fullmatch(column)
    return (_measure(found[1]), int(found[2]), int(found[3])) if found else None


def without_prefix(column: str) -> str:
    """A head's column without what a logger put before it; any other column as it is.

    Examples:
        >>> without_prefix("watch/induction_0_0"), without_prefix("train/loss")
        ('induction_0_0', 'train/loss')
    """
    bare = re.split("[/.]", column)[-1]
    return bare if place(bare) else column


def _measure(prefix: str) -> str:
    return next((measure for measure, known in MEASURES.items() if known == prefix), prefix)


def numbered(columns: Iterable[str], name: str) -> list[str]:
    """The columns `name_1`, `name_2`, ... in the order of their numbers."""
    found = ((c, re.fullmatch(f"{name}_{NUMBER}", c)) for c in columns)
    return [c for c, _ in sorted(((c, int(f[1])) for c, f in found if f), key=lambda pair: pair[1])]


def is_loss(column: str) -> bool:
    return _LOSS.search(column.lower()) is not None


def renamed(frame: "pd.DataFrame", source: Source | Callable[[], Source]) -> "pd.DataFrame":
    """A table with today's names for columns of earlier versions; `source` is called only if it has any."""
    old = [str(c) for c in frame if str(c).startswith(f"{OLD_ENTROPY}_")]
    if not old:
        return frame
    whose = source() if callable(source) else source
    return frame.set_axis([_renamed(str(c), whose) for c in frame], axis=1)


def renamed_row(row: Mapping[str, float], source: Source) -> Row:
    return {_renamed(name, source): value for name, value in row.items()}


def _renamed(column: str, source: Source) -> str:
    found = _HEAD.fullmatch(column)
    if found is None or found[1] != OLD_ENTROPY:
        return column
    return f"{NEW_ENTROPY[source]}_{found[2]}_{found[3]}"
