"""The run store, and sweeps over it."""

from unstuck.store.store import Store

__all__ = ["Store"]
