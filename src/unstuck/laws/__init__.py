"""From curves to statements: power laws of the plateau."""

from .compare import compare_laws
from .formula import parse
from .power import PowerLaw, fit_power_law
from .tables import read_table

__all__ = ["PowerLaw", "compare_laws", "fit_power_law", "parse", "read_table"]
