"""What a forecast is computed from: how the attention of the heads and the loss have moved, without units of steps.

The progress law of the theory says how much of a plateau has elapsed at a gain Δa of attention: erf(√Δa). A feature is
such a gain now or at a fraction of the present step, of the best head, the second and the mean; or a level, a setback,
a trend of the loss. None depends on the unit of steps, the number of heads or the length of the context.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unstuck.columns import COPY_ADVANTAGE
from unstuck.curve import Curve

from .events import Event, finite_loss
from .normal import cdf
from .plateau import RECENT_ROWS

Array = NDArray[np.float64]
FAINT = 0.1  # fraction of the heads' mean attention at the start below which attention counts as none
FAINT_GAIN = 0.03  # gain at which its logarithm levels off: about the noise of one measurement
PAST = (1.25, 1.6, 2.2, 3.0)  # the present step over that of an earlier row which is compared
HISTORY = PAST[-1]  # a forecast needs measurements from 1 / HISTORY of the present step on


@dataclass(frozen=True)
class Kind:
    """What a forecast rests on: measures of heads that move before an event."""

    name: str
    measures: tuple[str, ...]  # in the order of importance: the first is needed, the others are used if they are there
    event: Event
    blind: bool = False  # needs no knowledge of the task

    def rows(self, curve: Curve) -> Curve:
        """The rows in which all of its measures that the curve has are recorded, in the order of steps; those of the
        first one where no row has all."""
        there = [m for m in self.measures if len(curve.complete(m))]
        together = curve.complete(self.measures[0], *there[1:])
        return (together if len(together) else curve.complete(self.measures[0])).sorted()


#: The best first.
KINDS = {
    kind.name: kind
    for kind in (
        Kind("attention", ("attention", "copying"), Event.EXIT),
        Kind("induction", ("induction", "previous_token"), Event.CIRCUIT),
        Kind("entropy", ("readout_entropy",), Event.EXIT, blind=True),
    )
}

UNCALIBRATED = "row_entropy"  # a measure that a `Watch` always has; no runs were fitted on it

NAMES = (
    "gain",  # logarithm of the gain of the best head, along the measure where that is largest
    *(f"gain at 1/{past:g}" for past in PAST),  # the same at an earlier step
    "all measures",  # logarithm of the sum of the best heads' gains along all measures
    "second head",
    "mean head",  # of all measures
    "start",  # logarithm of the mean attention at the start
    "now",  # logarithm of the best head's attention
    "setback",  # largest fall of the best head's gain, over the gain
    "largest loss",  # largest fall of any head, over the gain
    "measures",  # 1 if there is more than one
    "trend",  # of what the event is defined by (log loss; copying advantage), since 1/1.6 of the present step
    "recent trend",  # since 1/1.25
)


def available(curve: Curve) -> list[str]:
    """The kinds of evidence that a curve has rows for, the best first."""
    return [name for name, kind in KINDS.items() if len(kind.rows(curve))]


def gain(curve: Curve) -> Array:
    """Logarithm of the best head's attention to the relevant tokens over that at the start: Δa of the theory."""
    return np.asarray(np.maximum(gains(curve.flat("attention")).max(1), 0.0))


def gains(attention: Array) -> Array:
    """Logarithm of every head's attention over that at the start, or over faint attention if that is more: a rise from
    almost nothing to little is no gain."""
    start = np.maximum(attention[0], max(FAINT * float(attention[0].mean()), 1e-12))
    return np.asarray(np.log(np.maximum(attention, 1e-12) / start))


@dataclass(frozen=True)
class Evidence:
    """What a curve has of one kind, as arrays in the order of steps."""

    kind: Kind
    steps: Array
    present: list[Array]  # of each measure, (rows, heads)
    own_steps: Array  # of what the event is defined by: the logarithm of the loss, or the copying advantage
    own: Array
    selectivity: Array  # of each head's first measure above chance, (rows, heads); NaN where it is not measured
    since: float = 0.0  # the step at which the loss came to its level, from which on steps are counted

    @classmethod
    def of(cls, curve: Curve, kind: Kind) -> "Evidence":
        rows = kind.rows(curve)
        present = [rows.flat(measure) for measure in kind.measures if measure in rows.measures]
        own = (_advantage if kind.event is Event.CIRCUIT else _log_loss)(curve)
        return cls(kind, rows.steps, present, *own, _selectivity(curve, rows, kind))

    @property
    def now(self) -> float:
        """The step of the last row."""
        return float(self.steps[-1])

    @property
    def counted(self) -> Array:
        """The steps since the loss came to its level."""
        return self.steps - self.since

    @property
    def usable_from(self) -> float:
        """The step from which on its rows go back far enough; infinite if there are none after the first."""
        return self.since + HISTORY * float(self.counted[self.counted > 0].min(initial=math.inf))

    def until(self, step: float) -> "Evidence":
        """What was known at a step."""
        return self._part(self.steps <= step, self.own_steps <= step)

    def from_step(self, since: float) -> "Evidence":
        """As of a run that starts at a step: at a new level of the loss, where other heads begin to move (stage-wise
        learning), gains and fractions of the past are those since then."""
        return replace(self._part(self.steps >= since, self.own_steps >= since), since=since) if since else self

    def _part(self, rows: NDArray[np.bool_], own: NDArray[np.bool_]) -> "Evidence":
        """Some of the rows."""
        present = [values[rows] for values in self.present]
        return Evidence(
            self.kind,
            self.steps[rows],
            present,
            self.own_steps[own],
            self.own[own],
            self.selectivity[rows],
            self.since,
        )

    @property
    def features(self) -> Array:
        """One number for each of `NAMES`, at the last row."""
        moved = [_drops(values) if self.kind.blind else gains(values) for values in self.present]
        best = np.array([m.max(1) for m in moved])  # (measures, rows)
        lead = int(best[:, -1].argmax())
        heads = np.sort(moved[lead][-1])[::-1]
        gain, earlier = best[lead], [row_at(self.counted, self.counted[-1] / past) for past in PAST]
        size = max(gain[-1], 0.0) + FAINT_GAIN
        level = 1 - self.present[lead] if self.kind.blind else self.present[lead]
        return np.array(
            [
                _log(gain[-1]),
                *(_log(gain[i]) for i in earlier),
                _log(np.maximum(best[:, -1], 0.0).sum()),
                _log(heads[min(1, len(heads) - 1)]),
                _log(sum(m[-1].mean() for m in moved)),
                np.log(max(level[0].mean(), 1e-12)),
                np.log(max(level[-1].max(), 1e-12)),
                (np.maximum.accumulate(gain) - gain).max() / size,
                max(0.0, -moved[lead].min()) / size,
                float(len(self.present) > 1),
                *self._trends(),
            ]
        )

    @property
    def best_head(self) -> tuple[str, int]:
        """The measure and the number of the head that moved most."""
        moved = [(_drops(values) if self.kind.blind else gains(values))[-1] for values in self.present]
        lead = int(np.argmax([m.max() for m in moved]))
        return self.kind.measures[lead], int(moved[lead].argmax())

    @property
    def chance(self) -> float | None:
        """The probability that the head that moved most attends to the targets as much as it does if heads know nothing
        of them: the upper tail of its selectivity, times the number of heads it is chosen from. None where that is not
        measured."""
        measure, head = self.best_head
        z = self.selectivity[-1, head] if measure == self.kind.measures[0] else math.nan
        return None if math.isnan(z) else min(1.0, self.selectivity.shape[1] * cdf(-z))

    def _trends(self) -> Sequence[float]:
        """By how much what defines the event was more at two earlier steps; 0 where it is not recorded."""
        if not len(self.own_steps):
            return 0.0, 0.0
        now = np.median(self.own[-RECENT_ROWS:])
        counted = self.own_steps - self.since
        ends = [row_at(counted, counted[-1] / past) + 1 for past in (PAST[1], PAST[0])]
        return [float(np.median(self.own[max(0, end - RECENT_ROWS) : end]) - now) for end in ends]


def _selectivity(curve: Curve, rows: Curve, kind: Kind) -> Array:
    """The selectivity of the heads of a kind, at its rows."""
    places = rows.head_places(kind.measures[0]) if len(rows) else []
    found = np.full((len(rows), len(places)), math.nan)
    if kind.measures[0] != "attention" or "selectivity" not in curve.measures:
        return found
    curve = curve.sorted()
    at, known = np.searchsorted(curve.steps, rows.steps), set(curve.head_places("selectivity"))
    for i, place in enumerate(places):
        if place in known:
            found[:, i] = curve.head("selectivity", *place)[at]
    return found


def _log(gain: float) -> float:
    return float(np.log(max(gain, 0.0) + FAINT_GAIN))


def _drops(entropy: Array) -> Array:
    """By how much every head's entropy fell, as a fraction of that of uniform attention."""
    return np.asarray(entropy[0] - entropy)


def row_at(steps: Array, step: float) -> int:
    """The last row at or before a step; the first one if there is none."""
    return max(int(np.searchsorted(steps, step, side="right")) - 1, 0)


def _log_loss(curve: Curve) -> tuple[Array, Array]:
    steps, losses = finite_loss(curve)
    return steps, np.log(np.maximum(losses, 1e-12))


def _advantage(curve: Curve) -> tuple[Array, Array]:
    if not curve.has(COPY_ADVANTAGE):
        return np.zeros(0), np.zeros(0)
    curve = curve.sorted()
    values = curve.values(COPY_ADVANTAGE)
    there = np.isfinite(values)
    return curve.steps[there], values[there]
