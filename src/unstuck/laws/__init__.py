"""From curves to statements: power laws of the plateau. Its parts are loaded when used: `laws.induction` needs no
pandas."""

from typing import TYPE_CHECKING

from unstuck.extras import loaded_when_used

if TYPE_CHECKING:
    from .compare import compare_laws
    from .formula import parse
    from .power import PowerLaw, fit_power_law
    from .tables import read_table

__all__ = ["PowerLaw", "compare_laws", "fit_power_law", "parse", "read_table"]

__getattr__ = loaded_when_used(
    __name__,
    {
        "PowerLaw": "unstuck.laws.power",
        "compare_laws": "unstuck.laws.compare",
        "fit_power_law": "unstuck.laws.power",
        "parse": "unstuck.laws.formula",
        "read_table": "unstuck.laws.tables",
    },
)
