"""From curves to statements: power laws of the plateau. Its parts are loaded when used: `laws.induction` needs no
pandas."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compare import compare_laws
    from .formula import parse
    from .power import PowerLaw, fit_power_law
    from .tables import read_table

__all__ = ["PowerLaw", "compare_laws", "fit_power_law", "parse", "read_table"]

_PLACES = {
    "PowerLaw": "unstuck.laws.power",
    "compare_laws": "unstuck.laws.compare",
    "fit_power_law": "unstuck.laws.power",
    "parse": "unstuck.laws.formula",
    "read_table": "unstuck.laws.tables",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'unstuck.laws' has no attribute {name!r}")
