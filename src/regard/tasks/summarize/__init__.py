"""The sentence of a docstring that says most; the truth is its author's first line."""
