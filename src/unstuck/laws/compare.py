"""Compare laws over the same runs by Akaike's criterion and by the likelihood of held-out sizes."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from .censored import fit
from .formula import parse
from .power import PowerLaw, fit_power_law


def compare_laws(table: Any, formulas: Sequence[str], offset: float | Literal["fit"] = 0.0) -> pd.DataFrame:
    """Laws over the same runs, the best first: AIC above that of the best, mean log likelihood of a run of a held-out
    size, R² and AIC; each with this offset, or with its own most likely one."""
    columns = list(dict.fromkeys(c for formula in formulas for term in parse(formula) for c in term.columns))
    rows = []
    for formula in formulas:
        law = fit_power_law(table, formula, sizes=columns, offset=offset)
        row = {"formula": law.formula, "above": law.aic, "held out": _held_out(law), "R²": law.r2, "AIC": law.aic}
        rows.append({**row, "offset": law.offset} if offset else row)
    out = pd.DataFrame(rows).sort_values("AIC", ignore_index=True)
    return out.assign(above=out["AIC"] - out["AIC"].min())


def _held_out(law: PowerLaw) -> float:
    """Mean log likelihood of a run whose size was left out of the fit, over all sizes; the offset stays."""
    data, total = law.data, law.log_likelihood - law.likely.log_likelihood
    for size in range(data.sizes):
        away = data.size != size
        rest = data.part(away)
        seen = rest.X[~rest.censored]  # censored runs alone do not determine a law
        if len(seen) <= seen.shape[1] or np.linalg.matrix_rank(seen) < seen.shape[1]:
            return float("nan")
        total += fit(rest).log_likelihood_of(data.part(~away))
    return total / len(data.y)
