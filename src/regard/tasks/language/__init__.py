"""Python's standard library, token by token; the truth are n-grams counted on it."""
