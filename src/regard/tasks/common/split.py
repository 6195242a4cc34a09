"""Which data are held out: decided by a hash of a name, before anything is made of them. Knows no data."""

from __future__ import annotations

import hashlib


def held_out(name: str, one_in: int = 10) -> bool:
    """Whether what is called `name` is held out for measuring: about one in `one_in`, the same on every machine.

    Args:
        name: a date, the path of a file, the name of a package.
        one_in: how many names there are for each one that is held out.

    >>> sum(held_out(f"date {day}") for day in range(1000))
    107
    """
    # Python's own hash of a string differs from process to process.
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % one_in == 0
