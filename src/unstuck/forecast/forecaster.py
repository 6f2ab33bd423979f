"""A forecast of the step at which a run will leave its plateau, with an interval, while the loss is still flat.

A signal gives the fraction of the plateau that has elapsed; with the present step that is an estimate of the plateau's
end, with the spread of the runs that the signal was calibrated on. A law of other runs, where there is one, is a second
estimate. Both are normal in the logarithm of the step and are weighted by the inverse of their variances.

The signal counts as present if the estimate holds still while the run goes on. For a signal that only drifts, the
estimate recedes as fast as the steps pass.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from unstuck.columns import STEP, pattern
from unstuck.curve import Curve
from unstuck.errors import BadInput, nearest
from unstuck.scalars import number, real

from .calibration import Calibration, shipped
from .estimate import Estimate, StepDistribution, combine
from .loss import closed, from_loss, if_diverged, if_left
from .outcome import Event, Forecast, Notes, Outcome
from .signals import (
    BLIND,
    LOOK_BACK,
    SIGNALS,
    UNCALIBRATED,
    Array,
    available,
    chance,
    current_name,
    largest_loss,
    recorded,
)

#: For each signal, in its own unit: below the first value it is chance; from the second on it is clearly more.
NOISE_AND_CLEAR = {
    "two_step_gain": (0.05, 0.1),
    "gain": (0.05, 0.1),
    "induction": (0.3, 0.3),
    "entropy_drop": (0.002, 0.02),
    "head_divergence": (0.001, 0.01),
    UNCALIBRATED: (math.inf, math.inf),  # nothing is a sign in what was not calibrated
}
#: Growth of the estimate over growth of the step, both in logarithms, above which the signal is absent: for signals
#: between chance and clear, and for clear ones.
MAX_RECESSION = (0.3, 0.7)
DRIFTING_GAIN = 0.7  # log: a smaller gain may be noise, which falls as often as it rises,
RISE_OVER_FALL = 2.0  # unless it is so many times the largest fall of any head
ROUNDING = 0.01  # by which a fraction may leave [0, 1]
INDUCTION_FORMED = 0.5  # induction score from which on a head is an induction head
#: Attention counts as no longer measured after so many times the widest gap between measurements, and this fraction of
#: the steps.
STALE_GAPS, STALE_SHARE = 2.0, 0.2
MAY_TILT = ("gain", "induction")  # signals whose calibration depends on the attention at the start


@dataclass(frozen=True)
class _Signal:
    """A signal along a curve that has nothing but the rows and columns it needs, in the order of steps."""

    name: str
    rows: Curve

    @cached_property
    def steps(self) -> Array:
        return self.rows.steps

    @cached_property
    def series(self) -> Array:
        return SIGNALS[self.name][1](self.rows) if self.name in SIGNALS else np.zeros(len(self.rows))

    @cached_property
    def chance(self) -> float | None:
        """Logarithm of the measure at the start, for a signal whose calibration depends on it."""
        return chance(self.rows, *SIGNALS[self.name][0]) if self.name in MAY_TILT else None

    @property
    def step(self) -> float:
        return float(self.steps[-1])

    @property
    def value(self) -> float:
        return float(self.series[-1])

    def is_stale(self, now: float) -> bool:
        """Has attention not been measured for long?"""
        widest = np.diff(self.steps).max(initial=1.0)
        return bool(now - self.step > max(STALE_GAPS * widest, STALE_SHARE * now))

    def earlier(self) -> int | None:
        """The last row with at most 1 / LOOK_BACK of the steps; None where there is none after step 0."""
        before = np.flatnonzero(self.steps <= self.step / LOOK_BACK)
        return int(before[-1]) if len(before) and self.steps[before[-1]] > 0 else None

    def usable_from(self) -> float | None:
        """The step from which on the rows go back far enough, if that is not reached."""
        first = LOOK_BACK * float(self.steps[self.steps > 0].min(initial=math.inf))
        return first if self.step < first < math.inf else None

    def drifts(self) -> bool:
        """Is a gain no more than heads show that drift up and down?"""
        if self.name != "gain" or self.value >= DRIFTING_GAIN:
            return False
        return self.value < RISE_OVER_FALL * largest_loss(self.rows)


class Forecaster:
    """When will a run leave its plateau? `predict(curve)` answers for a curve up to its last row; or give it the rows
    as they come with `update(row)`, and ask with `forecast()` at any time.

    `signal` is one of `SIGNALS`, or `auto`: the best that the curve has the measures for. `prior` is the prediction of
    a law for this run: the step, and the standard deviation of its logarithm, as `PowerLaw.predict_interval` or
    experience gives them. `level` is the coverage of the interval.
    """

    def __init__(
        self,
        signal: str = "auto",
        prior: tuple[float, float] | None = None,
        level: float = 0.8,
        calibrations: Mapping[str, Calibration] | None = None,
    ) -> None:
        signal = current_name(str(signal))
        if signal not in ("auto", *SIGNALS):
            raise BadInput("signal", signal, f"one of auto, {', '.join(SIGNALS)}{nearest(signal, SIGNALS)}")
        self.signal, self.prior = signal, None if prior is None else _pair(prior)
        self.level = real("level", level, 0.01, 0.9999, "a number from 0.01 to 0.9999")
        known = shipped() if calibrations is None else calibrations
        self.calibrations = {current_name(name): calibration for name, calibration in known.items()}
        if "gain" in self.calibrations:  # the same quantity, of other tokens
            self.calibrations.setdefault("induction", self.calibrations["gain"])
        self.rows: list[dict[str, float]] = []

    def update(self, row: Mapping[str, Any]) -> "Forecaster":
        """Take a row: `step`, and for every layer and head a measure of `unstuck.curve.MEASURES` (for a task in two
        steps both attention and copying), as numbers or tensors of one number."""
        try:
            taken = {k: number(v) for k, v in row.items() if not isinstance(v, str)}
        except (TypeError, ValueError, RuntimeError) as e:
            raise BadInput("the row", f"one with {e}", "made of numbers") from e
        if not math.isfinite(taken.get("step", math.nan)):
            raise BadInput("the row", ", ".join(row), "one with a step, a number")
        self.rows.append(taken)
        return self

    def forecast(self) -> Forecast:
        """From the rows so far."""
        return self.predict(Curve.of(pd.DataFrame(self.rows)))

    def predict(self, curve: Curve | pd.DataFrame) -> Forecast:
        """From a curve up to its last row: from the attention of its heads, and from the loss, if there is one, which
        shows whether the run has emerged or diverged. From the loss alone where no signal can be computed."""
        curve = Curve.of(curve)
        if self.signal == "auto" and curve.loss_name is not None and not available(curve):
            return from_loss(curve)
        said, rows = self.from_attention(curve), curve.sorted()
        return if_diverged(said, rows) or _if_formed(said, rows) or if_left(said, rows) or said

    def told(self, curve: Curve | pd.DataFrame) -> Forecast:
        """The old name of `predict`."""
        warnings.warn("Forecaster.told is now Forecaster.predict", FutureWarning, stacklevel=2)
        return self.predict(curve)

    def of_curve(self, curve: Curve | pd.DataFrame) -> Forecast:
        """The old name of `from_attention`."""
        warnings.warn("Forecaster.of_curve is now Forecaster.from_attention", FutureWarning, stacklevel=2)
        return self.from_attention(curve)

    def from_attention(self, curve: Curve | pd.DataFrame) -> Forecast:
        """From the attention of a curve up to its last row, whatever its loss shows."""
        curve = Curve.of(curve)
        if not len(curve):
            raise BadInput("the curve", "empty", "one with step and a row")
        signal = self._choose(curve)
        last = float(curve.steps.max())
        stale = signal.is_stale(last)
        now = last if stale else signal.step  # between two measurements the last one is the clock
        log_now = math.log(max(now, 1.0))
        own, law = self._own_estimate(signal), self._law()
        refuted = law is not None and law.is_refuted(log_now)
        notes = Notes(
            signal_present=own is not None and not own.is_refuted(log_now),
            moved=signal.value if own is None and signal.value >= NOISE_AND_CLEAR[signal.name][1] else None,
            last_measured=int(signal.step) if stale else None,
            refuted_law=self.prior[0] if self.prior and refuted else None,
        )
        event = Event.CIRCUIT if signal.name == "induction" else Event.EXIT
        said = Forecast(Outcome.NO_SIGN, now, signal.name, event, level=self.level, notes=notes)
        used = [e for e in (own, law) if e is not None and not e.is_refuted(log_now)]
        return self._emerges(said, StepDistribution(combine(used), log_now)) if used else _without_end(said, signal)

    def _emerges(self, said: Forecast, distribution: StepDistribution) -> Forecast:
        notes = said.notes
        if notes.signal_present:
            calibration = self.calibrations[said.signal]
            notes = replace(notes, calibrated_on=(calibration.signal, calibration.runs))
        return replace(said, outcome=Outcome.EMERGES, step=distribution.median, distribution=distribution, notes=notes)

    def _law(self) -> Estimate | None:
        return None if self.prior is None else Estimate(math.log(self.prior[0]), self.prior[1])

    def _choose(self, curve: Curve) -> _Signal:
        """The signal to use; a measure that no signal was calibrated on, where there is nothing else."""
        for name in SIGNALS if self.signal == "auto" else (self.signal,):
            if name in self.calibrations and len(rows := recorded(curve, name)):
                return _checked(name, rows)
        if self.signal == "auto" and len(rows := curve.complete(UNCALIBRATED)):
            return _checked(UNCALIBRATED, rows)
        raise BadInput("the curve", f"one with {', '.join(curve.columns)}", f"one with {self._needs(curve)}")

    def _needs(self, curve: Curve) -> str:
        """The columns that a curve lacks, for an error."""
        rest = ", for layers and heads, with numbers in them"
        if self.signal != "auto":
            return f"{' and '.join(map(pattern, SIGNALS[self.signal][0]))} of {self.signal}{rest}"
        *most, last = (pattern(measure) for measure in ("attention", "induction", "readout_entropy"))
        loss = "; or one with loss in its name, to see whether that is on a plateau" if curve.loss_name is None else ""
        return f"{', '.join(most)} or {last}{rest}{loss}"

    def _own_estimate(self, signal: _Signal) -> Estimate | None:
        """The estimate of the signal itself; None where the signal is absent: chance, receding or drifting."""
        chance_level, clear = NOISE_AND_CLEAR[signal.name]
        i = signal.earlier()
        if signal.step <= 0 or signal.value < chance_level or i is None:
            return None
        read = self.calibrations[signal.name].read
        ahead, spread = read(signal.value, signal.chance)
        grown = math.log(signal.step / signal.steps[i])
        receded = grown + ahead - read(max(signal.series[i], 0.0), signal.chance)[0]
        if receded >= MAX_RECESSION[int(signal.value >= clear)] * grown or signal.drifts():
            return None
        return Estimate(math.log(signal.step) + ahead, spread)


def _without_end(said: Forecast, signal: _Signal) -> Forecast:
    """No end can be predicted: because it is too early, or because there is no sign of it."""
    usable_from = signal.usable_from() if signal.name in SIGNALS else None
    if usable_from is None:
        return said
    return replace(said, outcome=Outcome.TOO_EARLY, notes=replace(said.notes, usable_from=usable_from))


def _if_formed(said: Forecast, curve: Curve) -> Forecast | None:
    """The forecast of a run with induction heads; None for any other run, and where they are not measured."""
    if said.signal != "induction":
        return None
    scores = recorded(curve, "induction")
    formed = scores.best("induction") >= INDUCTION_FORMED
    if not formed.any():
        return None
    return replace(closed(said, Outcome.EMERGED), event=Event.CIRCUIT, step=float(scores.steps[formed][0]))


def _checked(name: str, rows: Curve) -> _Signal:
    """A signal whose measures are fractions, from 0 to 1."""
    blind = name in (*BLIND, UNCALIBRATED)
    what = "as a fraction of the entropy of uniform attention" if blind else "as a fraction of all attention"
    measured = rows.to_frame().drop(columns=STEP)
    low, high = measured.min(), measured.max()
    for extreme, wrong in ((high, high > 1 + ROUNDING), (low, low < -ROUNDING)):
        if wrong.any():
            column = str(wrong.idxmax())
            raise BadInput(column, f"{extreme[column]:.4g}", f"from 0 to 1, {what}")
    return _Signal(name, rows.sorted())


def _pair(prior: Any) -> tuple[float, float]:
    """The prediction of a law: a step, and the standard deviation of its logarithm."""
    try:
        step, spread = (float(x) for x in prior)
    except (TypeError, ValueError) as e:
        raise BadInput("prior", prior, "a pair: a step, and the standard deviation of its logarithm") from e
    if not (0 < step < math.inf and 0 < spread < math.inf):
        raise BadInput("prior", prior, "a step above 0 and a standard deviation above 0, both finite")
    return step, spread
