"""A circuit that a run's result holds, in today's words: of recall, or of induction heads in a language model."""

from collections.abc import Mapping
from typing import Any

from unstuck.curve import Curve

from . import circuit
from .induction_circuit import InductionCircuit


def in_words(stored: Mapping[str, Any], curve: Curve) -> list[str]:
    """The sentences for a stored circuit. Circuits of recall have no `kind`."""
    if stored.get("kind") == InductionCircuit.kind:
        return InductionCircuit.from_dict(stored).says
    return circuit.in_words(stored, curve)
