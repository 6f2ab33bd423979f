"""The run store, and sweeps over it."""

from .store import Store

__all__ = ["Store"]
