"""Probes for any PyTorch model: where its heads look, sampled during somebody else's training loop."""

from .record import attention_maps
from .watch import Watch

__all__ = ["Watch", "attention_maps"]
