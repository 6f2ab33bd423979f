"""A forecast of the step at which an event comes, with an interval and a probability, while it lies ahead.

The survival model (`model.py`) turns the movement of attention into the distribution of the step. A law of other runs,
where there is one, is a second estimate of it. An end is stated if it comes, with a given probability, before a given
multiple of the present step. After an exit, steps are counted from when the loss came to its new level, and so are the
gains of the heads: what other heads learn next begins there (stage-wise learning).
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unstuck.columns import STEP, pattern
from unstuck.curve import Curve
from unstuck.errors import BadInput, nearest
from unstuck.scalars import number, real

from .events import Array, CircuitRule, Event, ExitRule, Standing, can_tell, exits, finite_loss
from .features import KINDS, UNCALIBRATED, Evidence, Kind, available
from .loss import closed, from_loss, if_diverged, without_level
from .model import Model, Models, shipped
from .notes import Notes, Outcome
from .outcome import Forecast
from .survival import Estimate, Survival, combine

if TYPE_CHECKING:
    import pandas as pd

REFUTED = 0.99  # probability given to what has not happened, from which on a law is left out
LIKELY = 0.95  # that a run emerges for which a law predicts a step, unless it is given with the law
UNLIKELY = 0.1  # probability of the event before twice the present step, up to which the outcome is NOT_SOON
STALE = 0.2  # attention counts as no longer measured after this fraction of the steps
ROUNDING = 0.01  # by which a fraction may leave [0, 1]
_OLD = {"gain": "attention", "two_step_gain": "attention", "links": "attention", "entropy_drop": "entropy"}
_OLD |= {"head_divergence": "entropy", "sharpening": "entropy", "parting": "entropy"}


class Forecaster:
    """When will a run leave its plateau, or form induction heads? `predict(curve)` answers for a curve up to its last
    row; or give it the rows as they come with `update(row)`, and ask with `forecast()` at any time.

    `signal` is one of `KINDS`, or `auto`: the best that the curve has the measures for. `prior` is the prediction of a
    law for this run: the step, the standard deviation of its logarithm, and, if known, the probability that such a run
    emerges. `level` is the coverage of the interval. An end is stated if it comes with probability `confidence` before
    `horizon` times the present step. At twice the horizon, and at a lower confidence, ends are stated earlier in the
    plateau, and more often falsely. It is not stated from attention that heads which know nothing of the targets would
    show with a probability above `chance`, where a curve has the selectivity of its heads: ends are stated earlier at
    twice the value, and falsely about twice as often in runs that cannot emerge.
    `exit_rule` says when a loss stands and when it has left its level, `circuit_rule` when induction heads have formed.
    `task` is the name of the run's task, where it is one of those that the models were fitted on; otherwise the answer
    is that of a simpler model, whose intervals were calibrated on tasks left out.
    """

    def __init__(
        self,
        signal: str = "auto",
        prior: Sequence[float] | None = None,
        level: float = 0.8,
        models: Mapping[str, Models] | None = None,
        horizon: float = 3.0,
        confidence: float = 0.5,
        chance: float = 0.001,
        exit_rule: ExitRule | None = None,
        circuit_rule: CircuitRule | None = None,
        task: str | None = None,
    ) -> None:
        signal = _current_name(str(signal))
        if signal not in ("auto", *KINDS):
            raise BadInput("signal", signal, f"one of auto, {', '.join(KINDS)}{nearest(signal, KINDS)}")
        self.signal, self.prior = signal, None if prior is None else _law(prior)
        self.level = real("level", level, 0.01, 0.9999, "a number from 0.01 to 0.9999")
        self.horizon = real("horizon", horizon, 1.01, 1e6, "a number above 1")
        self.confidence = real("confidence", confidence, 0.01, 0.9999, "a probability from 0.01 to 0.9999")
        self.chance = real("chance", chance, 0.0, 1.0, "a probability; with 1 every head counts")
        self.models, self.task = shipped() if models is None else models, task
        self.exit_rule, self.circuit_rule = exit_rule or ExitRule(), circuit_rule or CircuitRule()
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
        return self.predict(Curve.of(Curve.from_rows(self.rows).to_frame()))  # a table may have names of old columns

    def predict(self, curve: "Curve | pd.DataFrame") -> Forecast:
        """From a curve up to its last row: from the attention of its heads, and from the loss, if there is one, which
        shows whether the event has come or the run has diverged. From the loss alone where no heads are measured."""
        curve = _in_order(curve)
        if self.signal == "auto" and curve.loss_name is not None and not available(curve):
            return from_loss(curve)
        kind, (steps, losses) = self._choose(curve), finite_loss(curve)
        of_loss = kind is None or kind.event is Event.EXIT
        stood = list(self.exit_rule.standing(steps, losses)) if of_loss else []
        said = self._from_kind(curve, kind, stood[-1].since if stood else 0.0)
        if found := if_diverged(said, curve) or self._if_come(said, curve, steps, stood):
            return found
        if kind is not None and kind.event is Event.CIRCUIT:
            said = replace(said, notes=replace(said.notes, unformed=self.circuit_rule.unformed(curve)))
        if said.distribution is not None or (kind is not None and kind.name in self.models):
            return said
        if self.signal != "auto" or curve.loss_name is None:
            return said
        seen = from_loss(curve)  # nothing was fitted on such heads, as those of language models
        return replace(seen, notes=replace(seen.notes, unformed=said.notes.unformed))

    def told(self, curve: "Curve | pd.DataFrame") -> Forecast:
        """The old name of `predict`."""
        warnings.warn("Forecaster.told is now Forecaster.predict", FutureWarning, stacklevel=2)
        return self.predict(curve)

    def of_curve(self, curve: "Curve | pd.DataFrame") -> Forecast:
        """The old name of `from_attention`."""
        warnings.warn("Forecaster.of_curve is now Forecaster.from_attention", FutureWarning, stacklevel=2)
        return self.from_attention(curve)

    def from_attention(self, curve: "Curve | pd.DataFrame") -> Forecast:
        """From the attention of a curve up to its last row, whatever its loss shows."""
        curve = _in_order(curve)
        return self._from_kind(curve, self._choose(curve), 0.0)

    def _from_kind(self, curve: Curve, kind: Kind | None, since: float) -> Forecast:
        """From one kind of evidence, of a curve whose loss came to its level at step `since`."""
        last = float(curve.steps[-1])
        if kind is None:
            return self._stated(Forecast(Outcome.NO_SIGN, last, UNCALIBRATED, level=self.level), None)
        rows = _checked(kind, curve)
        whole = Evidence.of(curve, kind)
        measured, evidence = whole.now, whole.from_step(since if kind.event is Event.EXIT else 0.0)
        stale = last - measured > max(STALE * last, 2 * float(np.diff(whole.steps).max(initial=1.0)))
        now = last if stale else measured  # between two measurements the last one is the clock
        notes = Notes(last_measured=int(measured) if stale else None, since=evidence.since or None)
        said = Forecast(Outcome.NO_SIGN, now, kind.name, kind.event, level=self.level, notes=notes)
        if len(evidence.steps):
            said = replace(said, notes=replace(notes, head=_head(rows, evidence)))
        usable_from = evidence.usable_from
        fitted = kind.name in self.models  # else more measurements would not change the answer
        if fitted and measured < usable_from and (self.prior is None or evidence.since):
            notes = replace(said.notes, usable_from=usable_from if usable_from < math.inf else None)
            return replace(said, outcome=Outcome.TOO_EARLY, notes=notes)
        return self._stated(said, evidence if measured >= usable_from else None)

    def from_evidence(self, evidence: Evidence) -> Forecast:
        """From what a curve has of one kind of evidence, at its last row."""
        kind, notes = evidence.kind, Notes(since=evidence.since or None)
        said = Forecast(Outcome.NO_SIGN, evidence.now, kind.name, kind.event, level=self.level, notes=notes)
        return self._stated(said, evidence)

    def _stated(self, said: Forecast, evidence: Evidence | None) -> Forecast:
        """The forecast of the model, or of a law, or of both."""
        now, notes, since = said.now, said.notes, said.notes.since or 0.0
        model = self._model(said.signal)
        own = law = None
        if evidence is not None and model is not None:
            own, notes = self._from_heads(model, evidence, now, notes)
        prior = None if since else self.prior  # a law is about the first exit
        if prior is not None and prior.passed(now) > REFUTED:
            notes = replace(notes, refuted_law=math.exp(prior.mean))
        elif prior is not None:
            law = replace(prior, probability=prior.not_yet(now))
        both = own and law and model and combine(own, law, model.correlation, model.base)
        used = both or own or law
        said = replace(said, notes=notes)
        if used is None:
            return said
        survival = used.after(now, since)
        said = replace(said, probability=survival.soon, distribution=survival)
        if self._is_near(survival) or (law is not None and used.probability >= self.confidence):
            return replace(said, outcome=Outcome.EMERGES, step=survival.median)
        return replace(said, outcome=Outcome.NOT_SOON if survival.soon <= UNLIKELY else Outcome.NO_SIGN)

    def _model(self, signal: str) -> Model | None:
        """The model of a signal for the run's task; None where nothing was fitted."""
        models = self.models.get(signal)
        return None if models is None else models.of(self.task)

    def _from_heads(self, model: Model, evidence: Evidence, now: float, notes: Notes) -> tuple[Estimate | None, Notes]:
        """The estimate from the attention of the heads, None where it would state an end that chance may give; and what
        is noted of it."""
        x, chance = evidence.features, evidence.chance
        own = model.estimate(x, float(evidence.counted[-1]))
        near = self._is_near(own.after(now, evidence.since))
        selective = None if chance is None else chance <= self.chance
        withheld = near and selective is False
        calibrated_on = (model.kind, model.runs, model.digest)
        notes = replace(
            notes, calibrated_on=calibrated_on, known_task=self.task in model.tasks, unlike=model.is_unlike(x)
        )
        notes = replace(notes, chance=chance, selective=selective, signal_present=near and not withheld)
        return None if withheld else own, notes

    def _is_near(self, survival: Survival) -> bool:
        """Does the event come within the horizon, with the probability that is asked for?"""
        return survival.within(self.horizon) >= self.confidence

    def _if_come(self, said: Forecast, curve: Curve, steps: Array, stood: list[Standing]) -> Forecast | None:
        """The forecast of a run whose event has come, or whose loss has not stood at a level yet; None where the event
        lies ahead. `stood` is where its loss, known at `steps`, stood."""
        if said.event is Event.CIRCUIT:
            formed = self.circuit_rule.formed(curve)
            return None if formed is None else replace(closed(said, Outcome.EMERGED), event=Event.CIRCUIT, step=formed)
        if not stood:
            return without_level(said, curve) if can_tell(steps) else None
        if stood[-1].left is None and not self.exit_rule.is_done([at.level for at in stood]):
            return None  # it stands, or begins to leave its level
        left = exits(steps, stood)
        return replace(closed(said, Outcome.EMERGED), step=left[-1] if left else None)

    def _choose(self, curve: Curve) -> Kind | None:
        """The kind of evidence to use; None where there is only a measure that nothing was fitted on."""
        for name in KINDS if self.signal == "auto" else (self.signal,):
            if len(KINDS[name].rows(curve)):
                return KINDS[name]
        if self.signal == "auto" and len(curve.complete(UNCALIBRATED)):
            return None
        raise BadInput("the curve", f"one with {', '.join(curve.columns)}", f"one with {self._needs(curve)}")

    def _needs(self, curve: Curve) -> str:
        """The columns that a curve lacks, for an error."""
        rest = ", for layers and heads, with numbers in them"
        if self.signal != "auto":
            return f"{pattern(KINDS[self.signal].measures[0])} of {self.signal}{rest}"
        *most, last = (pattern(kind.measures[0]) for kind in KINDS.values())
        loss = "; or one with loss in its name, to see whether that is on a plateau" if curve.loss_name is None else ""
        return f"{', '.join(most)} or {last}{rest}{loss}"


def _in_order(curve: "Curve | pd.DataFrame") -> Curve:
    """A curve in the order of steps, which has rows."""
    curve = Curve.of(curve).sorted()
    if not len(curve):
        raise BadInput("the curve", "empty", "one with step and a row")
    return curve


def _head(rows: Curve, evidence: Evidence) -> tuple[str, int, int]:
    """The measure, layer and head that moved most."""
    measure, number = evidence.best_head
    return measure, *rows.head_places(measure)[number]


def _checked(kind: Kind, curve: Curve) -> Curve:
    """The rows of a kind, whose measures are fractions, from 0 to 1."""
    rows = kind.rows(curve)
    what = "as a fraction of the entropy of uniform attention" if kind.blind else "as a fraction of all attention"
    for column in rows.columns:
        values = rows.values(column)
        low, high = float(values.min()), float(values.max())
        if column != STEP and (high > 1 + ROUNDING or low < -ROUNDING):
            wrong = high if high > 1 + ROUNDING else low
            raise BadInput(column, f"{wrong:.4g}", f"from 0 to 1, {what}")
    return rows


def _current_name(signal: str) -> str:
    """The name of a signal today, with a warning if an old one is given."""
    if signal not in _OLD:
        return signal
    message = f"signal {signal} is now {_OLD[signal]}; the old name goes with the next release"
    warnings.warn(message, FutureWarning, stacklevel=3)
    return _OLD[signal]


def _law(prior: Any) -> Estimate:
    """The prediction of a law: a step, the standard deviation of its logarithm, and a probability."""
    try:
        step, spread, *rest = (float(x) for x in prior)
        (probability,) = rest or [LIKELY]
    except (TypeError, ValueError) as e:
        allowed = "a step, the standard deviation of its logarithm, and, if known, the probability of the event"
        raise BadInput("prior", prior, allowed) from e
    if not (0 < step < math.inf and 0 < spread < math.inf and 0 < probability <= 1):
        raise BadInput("prior", prior, "a step and a standard deviation above 0, finite, and a probability up to 1")
    return Estimate(math.log(step), spread, probability)
