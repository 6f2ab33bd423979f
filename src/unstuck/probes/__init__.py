"""What is measured on attention during training: attention to relevant tokens, circuits, the ladder, maps."""

from unstuck.probes.circuit import Circuit, ablated, find_circuit
from unstuck.probes.induction_circuit import InductionCircuit, find_induction_circuit
from unstuck.probes.ladder import specialisation
from unstuck.probes.maps import attention_table, draw_attention, draw_heads

__all__ = [
    "Circuit",
    "InductionCircuit",
    "ablated",
    "attention_table",
    "draw_attention",
    "draw_heads",
    "find_circuit",
    "find_induction_circuit",
    "specialisation",
]
