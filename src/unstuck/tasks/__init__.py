"""Tasks: what is learnt, one file each."""
