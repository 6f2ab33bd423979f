"""What `unstuck fit` prints."""

import math
from typing import Any

from rich.text import Text

from unstuck.laws import PowerLaw
from unstuck.view.console import console, new_table


def explain_law(law: PowerLaw, predictions: list[dict[str, Any]], ranking: Any) -> None:
    out = console()
    out.print(f"{law}\n", style="bold")
    percent = f"{law.level:.0%}"
    table = new_table("term", "estimate", f"{percent} interval")
    for name, row in law.summary().iterrows():
        what = "constant" if name == "constant" else f"exponent of {name}"
        table.add_row(what, f"{row['estimate']:.4g}", f"{row['low']:.4g} to {row['high']:.4g}")
    out.print(table)
    worst = math.exp(abs(law.residuals).max())
    late = f"{law.censored} censored" + (f", {law.used} of them used as such" if law.censored else "")
    out.print(f"\nR² = {law.r2:.4f} over {law.n} emerged runs, {late}; largest residual a factor of {worst:.2f}")
    different, numbers = len(set(law.data.size.tolist())), 1 + len(law.exponents)
    if different - numbers < 3 and (law.used or different > numbers):
        out.print(
            f"{different} different sizes for {numbers} numbers: the intervals are wide, and further sizes narrow "
            "them, not further seeds.",
            style="dim",
        )
    for found in predictions:
        answer = ("plateau", "low", "high", "beyond", "level")
        sizes = ", ".join(f"{k} = {v:g}" for k, v in found.items() if k not in answer)
        interval = f"{100 * found['level']:g}% interval {found['low']:,.0f} to {found['high']:,.0f}"
        out.print(Text.assemble((f"{sizes}: {found['plateau']:,.0f} steps", "bold"), f", {interval}"))
    if ranking is not None:
        out.print()
        table = new_table("law", "AIC, above the best", "log likelihood of a run of an unseen size", "R²")
        for row in ranking.itertuples(index=False):
            table.add_row(row[0], f"{row[1]:.1f}", f"{row[2]:.3f}", f"{row[3]:.4f}")
        out.print(table)
