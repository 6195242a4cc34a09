"""Which data are held out: said by a hash of a name, before anything is made of them. Knows no data."""

from __future__ import annotations

import hashlib


def held_out(name: str, one_in: int = 10) -> bool:
    """Whether what is called `name` is kept for measuring: about one in `one_in`, the same ones on every machine.

    Args:
        name: a date, the path of a file, the name of a package.
        one_in: how many for each one that is held out.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % one_in == 0
