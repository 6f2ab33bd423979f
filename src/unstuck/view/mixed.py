"""Runs that one formula should not be fitted to together: they differ in settings that it does not name."""

from dataclasses import dataclass

import pandas as pd

from unstuck.forecast.prior import differing

SHOWN = 4  # values of a setting in a sentence


@dataclass(frozen=True)
class Mixed:
    """The settings in which runs differ beside the formula, each with its values, that of the largest group first."""

    differs: dict[str, list[str]]

    @property
    def conditions(self) -> list[str]:
        """What the runs of the largest group meet."""
        return [f"{name}={values[0]}" for name, values in self.differs.items() if values[0] != "nan"]

    @property
    def sentence(self) -> str:
        shown = "; ".join(f"{name}: {', '.join(values[:SHOWN])}" for name, values in self.differs.items())
        return f"the runs also differ in {shown}, which the formula does not name."


def mixed_settings(table: pd.DataFrame, formula: str) -> Mixed | None:
    """What keeps the runs of a store from following one law; None where nothing does."""
    differs = differing(table, formula)
    return Mixed({str(name): [str(v) for v in values] for name, values in differs.items()}) if differs else None


def mixed_thresholds(table: pd.DataFrame) -> list[float]:
    """The thresholds of runs that have several, the commonest first; else nothing. Plateaus up to different thresholds
    are different quantities."""
    found = table["threshold"].dropna() if "threshold" in table else pd.Series(dtype=float)
    values = [float(x) for x in found.value_counts().index]
    return values if len(values) > 1 else []
