"""From curves to statements: power laws of the plateau."""

from .formula import parse
from .power import PowerLaw, compare_laws, fit_power_law
from .tables import read_table

__all__ = ["PowerLaw", "compare_laws", "fit_power_law", "parse", "read_table"]
