"""The figures of the two papers: emergence/ and incremental/, one file a figure."""
