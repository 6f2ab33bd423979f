"""The dashboard: `unstuck serve DIR`."""
