"""Dates from English to French and German; the truth is the field that each word comes from."""
