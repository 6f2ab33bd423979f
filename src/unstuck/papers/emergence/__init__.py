"""Zucchet et al. 2025, "The emergence of sparse attention": one file a figure."""
