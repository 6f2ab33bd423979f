"""Text as token indices: corpora by name or path, tokenisers, and what a text repeats."""
