"""Attach to any PyTorch model: measure the attention of its heads during your own training loop."""

from unstuck.attach.auto import AutoWatch, watch
from unstuck.attach.capture import attention_maps
from unstuck.attach.watch import Watch

__all__ = ["AutoWatch", "Watch", "attention_maps", "watch"]
