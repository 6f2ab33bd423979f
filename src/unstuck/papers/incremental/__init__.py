"""Yüksel et al. 2026, "Incremental learning of sparse attention patterns in Transformers": one file a figure."""
