"""What is measured on attention during training: attention to relevant tokens, circuits, the ladder, maps."""

from unstuck.probes.circuit import Circuit, ablated, find_circuit
from unstuck.probes.ladder import specialisation
from unstuck.probes.maps import attention_table, draw_attention, draw_heads

__all__ = ["Circuit", "ablated", "attention_table", "draw_attention", "draw_heads", "find_circuit", "specialisation"]
