"""What a forecast may come to, and what qualifies it."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What is said of a run at its present step."""

    EMERGES = "emerges"  # an end is predicted
    NOT_SOON = "not_soon"  # an end within twice the present step is unlikely
    NO_SIGN = "no_sign"  # nothing can be said: the evidence is between the two, or of a kind that nothing was fitted on
    TOO_EARLY = "too_early"  # the measurements do not go back far enough
    EMERGED = "emerged"  # the event has happened
    DIVERGED = "diverged"  # the loss is not finite, or far above its start
    # from the loss alone, which cannot say how long a plateau will last:
    PLATEAU = "plateau"
    FALLING = "falling"
    RISING = "rising"
    UNCLEAR = "unclear"  # too few rows
    LEFT = "left"  # the loss has fallen from a plateau


@dataclass(frozen=True)
class LossNotes:
    """What a loss alone shows."""

    rows: int  # with a finite loss
    last: float | None
    plateau_since: float | None = None  # step
    plateau_level: float | None = None  # median loss
    slope: tuple[float, float, float] | None = None  # fraction of the loss a doubling of steps, and its interval
    bound: float | None = None  # within which that is flat
    fell: tuple[float, float] | None = None  # from its first rows to its last, if nearly to zero


@dataclass(frozen=True)
class Notes:
    """What qualifies a forecast; None where it does not apply."""

    signal_present: bool = False  # the attention itself predicts the end; if not, only a law does
    calibrated_on: tuple[str, int, str] | None = None  # kind of evidence, number of runs, digest of the fitted model
    known_task: bool = False  # is its task among those that the model was fitted on?
    unlike: bool = False  # the run is unlike those that the model was fitted on: the interval's coverage is unknown
    head: tuple[str, int, int] | None = None  # measure, layer and head that moved most
    chance: float | None = None  # probability of such attention without knowledge of the targets, where it is measured
    selective: bool | None = None  # is that low enough to say that a head attends to the targets?
    since: float | None = None  # step at which the loss came to its level, from which steps are counted after an exit
    no_level: bool = False  # the loss has not stood at a level yet, so that there is none to leave
    usable_from: float | None = None  # step from which on the measurements go back far enough
    last_measured: int | None = None  # step of the last measurement of attention, if that is long ago
    unformed: float | None = None  # step of the last measurement that shows no induction heads, if none have formed
    refuted_law: float | None = None  # step that a law predicted, if it has passed without the event
    falling_since: float | None = None  # step at which the loss began to fall from its plateau
    divergence: str | None = None  # how the loss has diverged
    loss: LossNotes | None = None  # of a forecast from the loss alone
