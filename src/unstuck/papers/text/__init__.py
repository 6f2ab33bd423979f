"""Induction heads of language models on text: when they form, and which published laws hold."""
