"""Tiles of a few cells, so that a text of a few tokens has a pyramid of several levels and tiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

ROOM = "regard.web.tiles"


@contextmanager
def small_tiles(side: int = 4, base: int = 2) -> Iterator[None]:
    """In here tiles have `side` cells a side, and the base of a pyramid has cells of `base` tokens (powers of two)."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("arguments", "pyramid", "peaks"):
            patch.setattr(f"{ROOM}.{module}.SIDE", side)
        for module in ("head", "pyramid", "peaks"):
            patch.setattr(f"{ROOM}.{module}.BASE", base)
        patch.setattr(f"{ROOM}.pyramid.LEVELS", side.bit_length())
        patch.setattr(f"{ROOM}.peaks.FINE", base)
        patch.setattr(f"{ROOM}.pooling.STRETCH", 2 * base)
        patch.setattr(f"{ROOM}.allowed.LEAF", base)
        patch.setattr("helpers.dense_tiles.SIDE", side)
        yield
