"""Models: what learns, one file each."""
