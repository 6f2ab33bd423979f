"""A law of chosen runs for the page: the fit, what the command would warn of, and a prediction."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.errors import BadInput
from unstuck.laws import PowerLaw, fit_power_law
from unstuck.laws.tables import unscheduled
from unstuck.laws.tables import where as where_rows
from unstuck.view.mixed import mixed_settings, mixed_thresholds
from unstuck.view.plain import plain
from unstuck.view.report.runs import formula_of, law_of


def law_answer(table: pd.DataFrame, formula: str, conditions: list[str], sizes: Mapping[str, float]) -> dict[str, Any]:
    """The law of the runs that meet all conditions, with the settings that it ignores, that which explains most of the
    residuals first; no law, and the reason, where
    their plateaus end at different thresholds."""
    met = where_rows(table, conditions)
    runs = unscheduled(met)
    try:
        mixed = mixed_settings(runs, formula)
        warnings = [] if mixed is None else [f"T{mixed.sentence[1:]}"]
        comparable = [] if mixed is None else mixed.conditions
        notes: list[str] = []
        if len(runs) < len(met):
            notes.append(f"{len(met) - len(runs)} runs under a diversity schedule are left out.")
        said = {"formula": formula, "warnings": warnings, "notes": notes, "comparable": comparable}
        if thresholds := mixed_thresholds(runs):
            shown = ", ".join(f"{x:g}" for x in sorted(thresholds))
            refused = f"The runs end at different thresholds ({shown}), so that their plateaus do not compare."
            commonest = f"threshold={thresholds[0]:g}"
            return said | {"refused": refused, "comparable": [*comparable, commonest]}
        return said | _fitted(runs, formula, sizes, [] if mixed is None else list(mixed.differs), warnings)
    except BadInput:
        raise
    except ValueError as e:
        raise BadInput("formula", formula, f"one that can be fitted to these runs ({e})") from e


def _fitted(
    runs: pd.DataFrame, formula: str, sizes: Mapping[str, float], ignored: list[str], warnings: list[str]
) -> dict[str, Any]:
    law = fit_power_law(runs, formula)
    answer = law_of(runs, formula, "these runs", law) | {"prediction": None}
    emerged = runs.set_index(runs["run_id"].astype(str)).loc[answer["run_id"]]
    residuals = np.log(emerged["plateau_steps"].to_numpy(dtype=float) / np.asarray(law.predict(emerged)))
    explained = {c: _explained(residuals, emerged[c]) for c in ignored}
    telling = sorted(ignored, key=lambda c: -explained[c])
    answer["ignored"] = {c: [None if v != v else plain(v) for v in emerged[c].tolist()] for c in telling}
    if law.censored > law.used:
        lost = law.censored - law.used
        warnings.append(f"{lost} runs that did not emerge are left out, since their last step is not known.")
    if sizes:
        answer["prediction"] = _prediction(law, sizes)
    return answer


def _explained(residuals: NDArray[np.float64], values: pd.Series) -> float:
    """How much of the residuals' sum of squares lies in the means of the groups that a setting makes."""
    groups = pd.Series(residuals).groupby(values.map(str).to_numpy())
    return float((groups.size() * groups.mean() ** 2).sum())


def _prediction(law: PowerLaw, sizes: Mapping[str, float]) -> dict[str, Any]:
    """The plateau of a new run, with its 90% interval."""
    needed = list(dict.fromkeys(c for term in law.terms for c in term.columns))
    if not set(needed) <= set(sizes):
        raise BadInput("predict", " ".join(sizes), f"a value for each of {', '.join(needed)}")
    said = law.predict_interval(dict(sizes), level=0.9).iloc[0]
    return {k: plain(float(said[k])) for k in ("plateau", "low", "high")} | {"beyond": str(said["beyond"])}


def first_law(table: pd.DataFrame) -> dict[str, str]:
    """The runs of the most frequent task, at the most frequent threshold if there are several, and a formula of the
    sizes in which they differ."""
    if "task" not in table:
        return {}
    tasks = table["task"].astype(str)
    commonest = tasks.value_counts().index[0]
    runs = table[tasks == commonest]
    several = mixed_thresholds(runs)
    where = f"task={commonest}" + (f" threshold={several[0]:g}" if several else "")
    return {"where": where, "formula": formula_of(runs) or ""}
