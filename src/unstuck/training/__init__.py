"""How it learns."""
