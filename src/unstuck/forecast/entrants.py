"""Forecasters that `unstuck bench forecast` compares: rules of thumb, laws, the rule shipped before, and the model.

An entrant has a `name` and `predict(run, curve, now)`, and may have `fit(runs)`. It is fitted without runs of the sizes
that it is judged on. `run` holds its settings, and what was known at step `now`.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd

from unstuck.config.names import shown_name
from unstuck.curve import Curve
from unstuck.errors import BadInput

from .events import ExitRule, finite_loss
from .features import FAINT_GAIN, KINDS, Evidence
from .fitting import FOLDS, KNOWN, OTHERS, Form, fit, fold, left_out
from .forecaster import REFUTED, Forecaster
from .model import WIDEST, Model, Models, law, shipped
from .prior import FORMULAS, SizeLaw, settings_named
from .runs import MeasuredRun, is_fitted_on, moments_table
from .survival import Estimate, Survival

LEVEL = 0.8  # coverage that intervals should have
FALL = ExitRule().fall  # fraction of its level by which a loss falls at an exit
LEAST_RUNS = 30  # that emerged, for a model to be fitted to a kind of evidence
LAST_PART = 2 / 3  # of the steps, from which on a line is laid through the loss
#: Of an unreviewed pre-registered study on synthetic languages: the score of a head of the first layer at which it
#: raises its alarm, and the step of the event over that of the alarm.
ALARM_SCORE, EVENT_OVER_ALARM = 0.10, 1.19


class Prediction(NamedTuple):
    """The step of the event, an 80% interval, the probability that it comes before twice the present step, and whether
    the run is unlike those of the fit, so that the interval claims no coverage (1 or 0); NaN where there is none."""

    median: float = math.nan
    low: float = math.nan
    high: float = math.nan
    soon: float = math.nan
    unlike: float = math.nan


@dataclass(frozen=True)
class RunUntilNow(MeasuredRun):
    """What was known of a run at a step: its curve ends there. Its family is empty where its task is not told."""

    evidence: Evidence  # of the best kind that it has, up to that step, since its loss came to its level

    @property
    def since(self) -> float:
        """The step at which its loss came to its level; 0 before the first exit."""
        return self.evidence.since


class Entrant(Protocol):
    """A forecaster. One that learns also has `fit(runs)`."""

    name: str

    def predict(self, run: RunUntilNow, curve: Curve, now: float) -> Prediction: ...


class TwiceElapsed:
    """The event comes at twice the present step, whatever was measured; after an exit, steps count from when the loss
    came to its level."""

    name = "twice elapsed"

    def predict(self, run: RunUntilNow, curve: Curve, now: float) -> Prediction:
        return Prediction(2 * now - run.since)


class LossLine:
    """A straight line through the last third of the loss reaches 0.8 of its level; no answer where it does not fall."""

    name = "loss extrapolation"

    def predict(self, run: RunUntilNow, curve: Curve, now: float) -> Prediction:
        steps, losses = finite_loss(curve)
        last = steps >= LAST_PART * now
        if last.sum() < 2:
            return Prediction()
        slope, offset = np.polyfit(steps[last], losses[last], 1)
        if slope >= 0:
            return Prediction()
        return Prediction(max(now, ((1 - FALL) * float(np.median(losses[last])) - offset) / slope))


class ProgressLaw:
    """The theory's law, without a parameter: the fraction that has elapsed is erf(√gain). No answer while the gain is
    within the noise of a measurement."""

    name = "progress law"

    def predict(self, run: RunUntilNow, curve: Curve, now: float) -> Prediction:
        x = run.evidence.features
        if math.exp(x[0]) <= 2 * FAINT_GAIN:
            return Prediction()
        return Prediction(run.since + (now - run.since) * math.exp(float(law(x))))


class PreviousToken:
    """1.19 times the step at which a head of the first layer passes a previous-token score of 0.10; where that is not
    measured, no answer."""

    name = "previous-token rule"

    def predict(self, run: RunUntilNow, curve: Curve, now: float) -> Prediction:
        if "previous_token" not in curve.measures:
            return Prediction()
        rows = curve.complete("previous_token").sorted()
        first = [layer == 0 for layer, _ in rows.head_places("previous_token")]
        above = rows.flat("previous_token")[:, first].max(1) > ALARM_SCORE
        return Prediction(max(now, EVENT_OVER_ALARM * float(rows.steps[above][0]))) if above.any() else Prediction()


class SizesLaw:
    """A power law of the first exit in the sizes, fitted to runs that differ in sizes and seed alone; no answer after
    the first exit, where the law is refuted, and for families without a formula."""

    name = "law of sizes"

    def __init__(self) -> None:
        self.laws: dict[str, SizeLaw | None] = {}
        self.runs: dict[str, pd.DataFrame] = {}
        self._exits: dict[str, dict[str, float | str]] = {}  # by run: the same for all that it is fitted on

    def fit(self, runs: Sequence[MeasuredRun]) -> None:
        self.laws, rows = {}, []
        for run in runs:
            if _formula(run):
                ended = self._exits[run.run_id] = self._exits.get(run.run_id) or _first_exit(run.curve)
                rows.append({"setting": _setting(run), **run.settings, **ended})
        self.runs = {str(k): part for k, part in pd.DataFrame(rows).groupby("setting")} if rows else {}

    def predict(self, run: RunUntilNow, curve: Curve, now: float) -> Prediction:
        estimate = None if run.since else self.estimate(run)
        if estimate is None or estimate.passed(now) > REFUTED:
            return Prediction()
        return _of(Survival(now, estimate.mean, estimate.spread, estimate.not_yet(now)))

    def estimate(self, run: MeasuredRun) -> Estimate | None:
        """What the law says of the first exit of a run."""
        if not (found := self._law(run)):
            return None
        step, spread, probability, _ = found.predict(run.settings)
        return Estimate(math.log(step), spread, probability)

    def _law(self, run: MeasuredRun) -> SizeLaw | None:
        setting = _setting(run)
        if setting not in self.laws:
            self.laws[setting] = self._fitted(self.runs.get(setting), _formula(run))
        return self.laws[setting]

    @staticmethod
    def _fitted(alike: pd.DataFrame | None, formula: str | None) -> SizeLaw | None:
        if alike is None or formula is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of laws of few sizes, whose intervals are too short
            try:
                return SizeLaw.fit(alike, formula)
            except BadInput:  # too few runs, or all of one size
                return None


class ShippedRule:
    """The rule that was shipped before the model, by the best signal, without a law: its answers at the benchmark's
    moments, from a table (tools/shipped_rule.py)."""

    name = "rule shipped before"

    def __init__(self, table: Path) -> None:
        said = pd.read_csv(table, comment="#", dtype={"run_id": str}) if table.is_file() else pd.DataFrame()
        self.said = {(str(row.run_id), float(row.step)): Prediction(*row[2:6]) for row in said.itertuples(index=False)}

    def predict(self, run: RunUntilNow, curve: Curve, now: float) -> Prediction:
        return self.said.get((run.run_id, now), Prediction())


class Fits:
    """Survival models by the runs that they are fitted on, so that entrants share them."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], pd.DataFrame] = {}
        self._models: dict[tuple[frozenset[str], str, bool], Model | None] = {}

    def model(self, runs: Sequence[MeasuredRun], kind: str, form: Form) -> Model | None:
        """A model of one kind of evidence; None if too few events are among the runs."""
        key = frozenset(run.run_id for run in runs), kind, form is KNOWN
        if key not in self._models:
            table = pd.concat([self._table(run, kind) for run in runs if is_fitted_on(run)] or [pd.DataFrame()])
            known = len(table) and table.loc[table["event"].notna(), "run_id"].nunique() >= LEAST_RUNS
            self._models[key] = _with_correlation(fit(table.reset_index(drop=True), kind, form)) if known else None
        return self._models[key]

    def _table(self, run: MeasuredRun, kind: str) -> pd.DataFrame:
        key = run.run_id, kind
        if key not in self._tables:
            self._tables[key] = moments_table([run], kind)
        return self._tables[key]


class SurvivalModel:
    """The survival model as `Forecaster` uses it, fitted and calibrated on the runs it is given; with a law of sizes as
    its prior, if there is one, which is another entrant and fitted before."""

    def __init__(self, name: str, fits: Fits, law: SizesLaw | None = None) -> None:
        self.name, self.fits, self.law = name, fits, law
        self.runs: Sequence[MeasuredRun] = ()

    def fit(self, runs: Sequence[MeasuredRun]) -> None:
        self.runs = runs

    def models(self, kind: str, task: str) -> Models | None:
        """Those of one kind of evidence, fitted when they are first asked for; only what a run of the task needs."""
        model = None if KINDS[kind].blind else self.fits.model(self.runs, kind, KNOWN if task else OTHERS)
        return None if model is None else Models(model, model)

    def predict(self, run: RunUntilNow, curve: Curve, now: float) -> Prediction:
        kind = run.evidence.kind.name
        models = self.models(kind, run.task)
        if models is None:
            return Prediction()
        law = None if self.law is None or run.since else self.law.estimate(run)
        prior = None if law is None else (math.exp(law.mean), law.spread, law.probability)
        said = Forecaster(kind, prior, LEVEL, {kind: models}, task=run.task).from_evidence(run.evidence)
        soon = math.nan if said.probability is None else said.probability
        unlike = math.nan if said.notes.calibrated_on is None else float(said.notes.unlike)
        interval = said.interval()
        if interval is None or said.step is None:
            return Prediction(soon=soon, unlike=unlike)
        return Prediction(said.step, *interval, soon, unlike)


def entrants(answers: Path) -> list[Entrant]:
    """All of them, the simplest first; `answers` is the table of the rule that was shipped before."""
    fits, law = Fits(), SizesLaw()
    model, both = SurvivalModel("survival model", fits), SurvivalModel("survival model and law", fits, law)
    return [TwiceElapsed(), LossLine(), PreviousToken(), ProgressLaw(), law, ShippedRule(answers), model, both]


def _with_correlation(model: Model) -> Model:
    """With the correlation that tools/calibrate.py found: one number of all runs."""
    found = shipped().get(model.kind)
    return model if found is None else replace(model, correlation=found.known.correlation)


def error_correlation(runs: Sequence[MeasuredRun], kind: str) -> float:
    """Correlation between the errors of model and law on the first exits of sizes left out, one vote a run; each error
    in units of its stated standard deviation, at most `WIDEST` of them. 0 where no run has a law."""
    found = paired_errors(runs, kind)
    if len(set(found["run_id"])) <= 1:
        return 0.0
    votes = 1 / found.groupby("run_id")["model"].transform("size")
    covariance = np.cov(found[["model", "law"]].clip(-WIDEST, WIDEST).T, aweights=votes)
    return float(covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1]))


def paired_errors(runs: Sequence[MeasuredRun], kind: str) -> pd.DataFrame:
    """Errors of `model` and `law` on sizes left out, at the moments before the first exit of each run."""
    table = moments_table(filter(is_fitted_on, runs), kind)
    table = table.join(left_out(table, kind))
    parts, law = [pd.DataFrame(columns=["run_id", "family", "size", "model", "law"])], SizesLaw()
    for i in range(FOLDS):
        law.fit([run for run in runs if fold(run.size) != i])
        for run in (run for run in runs if fold(run.size) == i and _formula(run)):
            mine, estimate = table[table["run_id"] == run.run_id], law.estimate(run)
            if estimate is None or mine.empty:
                continue
            mine = mine[mine["since"] == 0].dropna(subset="event")
            event = np.log(mine["event"])
            own = (event - np.log(mine["step"]) - mine["mean"]) / mine["spread"]
            errors = mine[["run_id", "family", "size"]].assign(model=own, law=(event - estimate.mean) / estimate.spread)
            parts.append(errors.assign(law_error=event - estimate.mean))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _of(survival: Survival) -> Prediction:
    return Prediction(survival.median, *survival.interval(LEVEL), survival.soon)


def _formula(run: MeasuredRun) -> str | None:
    return FORMULAS.get(shown_name(run.task))


def _setting(run: MeasuredRun) -> str:
    """What runs have in common that a law of sizes is fitted to."""
    named = {*settings_named(_formula(run) or ""), "seed", "status"} if _formula(run) else set()
    return f"{run.family} {sorted((k, str(v)) for k, v in run.settings.items() if k not in named)}"


def _first_exit(curve: Curve) -> dict[str, float | str]:
    """The first exit of a run as a law takes it."""
    exits = ExitRule().exits(curve)
    ended = {"plateau_steps": exits[0] if exits else math.nan, "steps": float(curve.steps.max())}
    return {**ended, "status": "emerged" if exits else "censored"}
