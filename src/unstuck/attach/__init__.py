"""Probes for any PyTorch model: where its heads look, sampled during somebody else's training loop."""

from unstuck.attach.capture import attention_maps
from unstuck.attach.watch import Watch

__all__ = ["Watch", "attention_maps"]
