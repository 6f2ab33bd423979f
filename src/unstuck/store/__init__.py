"""Runs on disk: layout, locks, checkpoints, results. Knows nothing of how runs are made."""

from unstuck.store.store import Result, Store

__all__ = ["Result", "Store"]
