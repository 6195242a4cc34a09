"""Codes by which a class is joined: read aloud, typed, and not guessed."""

from __future__ import annotations

import secrets

# Without what is mistaken for something else (0 O, 1 I L), and without vowels and Y, so that no word comes about.
LETTERS = "23456789BCDFGHJKMNPQRSTVWXZ"
# 27⁸ codes, 38 bits: few tries are let through, so that this is enough.
LENGTH = 8


def new_code() -> str:
    """A code that nobody guesses, as it is stored."""
    return "".join(secrets.choice(LETTERS) for _ in range(LENGTH))


def shown(code: str) -> str:
    """A code as it is shown and read aloud.

    Example:
        >>> shown("K7QXM3WP")
        'K7QX-M3WP'
    """
    half = LENGTH // 2
    return f"{code[:half]}-{code[half:]}"


def plain(typed: str) -> str:
    """A code as it is stored, however it was typed; "" for what is none.

    Example:
        >>> plain(" k7qx m3wp "), plain("K7QX")
        ('K7QXM3WP', '')
    """
    code = "".join(letter for letter in typed.upper() if not letter.isspace() and letter not in "-–—.")
    if len(code) != LENGTH or not set(code) <= set(LETTERS):
        return ""
    return code
