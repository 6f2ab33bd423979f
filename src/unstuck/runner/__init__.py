"""Carry out runs: one, many, here or on a cluster."""
