"""The prior of a forecast: what a law of other runs predicts for this one's first exit from a plateau."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from unstuck.config.load import own_class
from unstuck.config.names import shown_name
from unstuck.config.run import OptimSpec, TrainSpec
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.laws import PowerLaw, fit_power_law
from unstuck.laws.formula import parse
from unstuck.laws.tables import at_threshold

from ._old import old_names
from .events import ExitRule

FORMULAS = {"regression": "d + T/B", "recall": "tokens + pairs"}
DEFAULTS = {f.name: f.default for f in fields(OptimSpec) if f.name != "name"}
#: Settings that do not change the dynamics of a run.
WITHOUT_EFFECT = {"seed", "run_id", *(f.name for f in fields(TrainSpec))} - {"batch"}


def runs_alike(table: pd.DataFrame, mine: Mapping[str, Any], formula: str) -> pd.DataFrame:
    """The runs of a table that differ from a run only in what the formula names, at the same threshold."""
    defaults = _defaults(mine)
    mine = {**DEFAULTS, **mine}
    for column in ({*mine, "schedule"} - set(settings_named(formula)) - WITHOUT_EFFECT) & set(table):
        value = mine.get(column)
        missing = value is None or value == defaults.get(column)  # a run older than a setting has its default
        same = table[column].map(lambda other, value=value: bool(other == value)).astype(bool)
        table = table[same | (table[column].isna() & missing)]
    thresholds = mine.get("thresholds") or []
    if len(thresholds) and "threshold" in table and (table["threshold"] != thresholds[-1]).any():
        table = at_threshold(table, float(thresholds[-1]))
    return table


def _defaults(run: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the settings of a run's optimiser, and of its task and model where those are ours."""
    found = dict(DEFAULTS)
    for section in ("task", "model"):
        kind = own_class(section, run.get(section))
        found |= {} if kind is None else {f.name: f.default for f in fields(kind) if f.name != "name"}
    return found


def _shown(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


RESULTS = {"status", "threshold", "plateau_steps", "steps", "seconds"}


def differing(table: pd.DataFrame, formula: str) -> dict[str, list[Any]]:
    """Settings in which the runs of a store differ but which a formula does not name, each with its values: a law over
    these runs would treat them as equal. First comes the value in the commonest combination of these settings."""
    runs = table[table["status"].isin(["emerged", "censored"])]
    shown = {}
    for column in runs:
        if column in WITHOUT_EFFECT | RESULTS | {*settings_named(formula)} or column.startswith("crossing_"):
            continue
        filled = runs[column].fillna(DEFAULTS[column]) if column in DEFAULTS else runs[column]
        if len(set(filled.dropna().map(_shown))) > 1:
            shown[column] = filled.map(_shown)
    if "task" in shown:  # tasks have settings of their own
        shown = {"task": shown["task"]}
    if not shown:
        return {}
    likest = pd.DataFrame(shown).value_counts().index[0]  # the combination that most runs have
    return {
        name: [str(mine), *(x for x in values.value_counts().index if x not in (mine, _shown(math.nan)))]
        for (name, values), mine in zip(shown.items(), likest, strict=True)
    }


def settings_named(formula: str) -> list[str]:
    """The settings of a formula; task.T and T are one."""
    return [c.rpartition(".")[2] for term in parse(formula) for c in term.columns]


def extrapolation_error(table: pd.DataFrame, formula: str) -> float:
    """Error of a law one doubling beyond its sizes, in logarithms: for each term, the law is fitted without the largest
    value of the term and tested on that. Exponents that rise with size err to the same side, so the errors add up."""
    total = 0.0
    emerged = table[table["status"] == "emerged"]
    for term in parse(formula):
        size = term.evaluate(emerged)
        largest = size == size.max()
        predicted = fit_power_law(emerged[~largest], formula, offset="fit").predict(emerged[largest])
        total += float(np.sqrt(np.mean(np.log(predicted / emerged.loc[largest, "plateau_steps"]) ** 2)))
    return total


def estimate(law: PowerLaw, error: float, sizes: Mapping[str, Any]) -> tuple[float, float, str]:
    """The plateau that a law predicts, the standard deviation of its logarithm, and the terms that lie beyond the sizes
    it was fitted on; beyond them the standard deviation is at least `error`, that of `extrapolation_error`."""
    found = law.predict_interval(sizes, level=0.6827).iloc[0]
    spread = float(math.log(found["high"] / found["low"]) / 2)
    return float(found["plateau"]), max(spread, error) if found["beyond"] else spread, str(found["beyond"])


@dataclass(frozen=True)
class SizeLaw:
    """A power law of runs alike, fitted by `fit`."""

    law: PowerLaw
    error: float  # of the law one doubling beyond its sizes, in logarithms
    probability: float  # that such a run emerges: (emerged + 1) / (runs + 2), Laplace's rule of succession

    @classmethod
    def fit(cls, alike: pd.DataFrame, formula: str) -> "SizeLaw":
        law = fit_power_law(alike, formula, offset="fit")
        try:
            error = extrapolation_error(alike, formula)
        except BadInput:  # too few sizes to measure it
            error = math.log(2)
        ended = alike["status"].isin(["emerged", "censored"])
        return cls(law, error, ((alike["status"] == "emerged").sum() + 1) / (ended.sum() + 2))

    def predict(self, sizes: Mapping[str, Any]) -> tuple[float, float, float, str]:
        """The step for a run of these sizes, the standard deviation of its logarithm, the probability that the run
        emerges, and the terms that lie beyond the sizes it was fitted on."""
        step, spread, beyond = estimate(self.law, self.error, sizes)
        return step, spread, float(self.probability), beyond


def first_exits(table: pd.DataFrame, curve_of: Callable[[str], Curve | None], rule: ExitRule) -> pd.DataFrame:
    """A table of runs whose plateaus end where the loss first left a level, and not at a threshold of the task; a run
    that has not is censored at its last step. Runs without a curve are left out."""
    rows = []
    for row in table[table["status"].isin(["emerged", "censored", "finished"])].to_dict("records"):
        curve = curve_of(str(row["run_id"]))
        if curve is not None and curve.loss_name is not None:
            exits = rule.exits(curve)
            end = exits[0] if exits else math.nan
            status = "emerged" if exits else "censored"
            rows.append({**row, "plateau_steps": end, "status": status, "steps": float(curve.steps.max())})
    return pd.DataFrame(rows, columns=list(table))


def prior_of(
    mine: Mapping[str, Any],
    table: pd.DataFrame,
    formula: str | None,
    curve_of: Callable[[str], Curve | None] | None = None,
) -> tuple[float, float, float, str]:
    """What the law of those runs of a table that are like this one predicts for it, as `SizeLaw.predict` gives it. With
    their curves, by run id, it is a law of first exits; without, of the column `plateau_steps`."""
    formula = formula or FORMULAS.get(shown_name(str(mine.get("task"))))
    if formula is None:
        raise BadInput("--formula", "missing", f"given for the task {mine.get('task')!r}, such as 'T + d'")
    lacks = sorted(set(settings_named(formula)) - set(mine))
    if lacks:
        raise BadInput("--formula", formula, f"made of settings of this run, which has no {', '.join(lacks)}")
    alike = runs_alike(table, mine, formula)
    known = [*dict.fromkeys(settings_named(formula)), "seed"]
    if {*known} <= {*alike} and "seed" in mine:  # without this very run, under whatever name
        alike = alike[~(alike[known] == [mine[c] for c in known]).all(axis=1)]
    if curve_of is not None:
        alike = first_exits(alike, curve_of, ExitRule())
    terms = len(parse(formula))
    if (alike["status"] == "emerged").sum() <= terms + 1:
        differ = f"{terms + 2} runs or more that emerged and differ from this one in {formula} and seed only"
        raise BadInput("--law", f"a store with {(alike['status'] == 'emerged').sum()} of them", differ)
    return SizeLaw.fit(alike, formula).predict(mine)


__getattr__ = old_names(__name__, {"opinion": estimate})
