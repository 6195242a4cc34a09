"""The engine that is always there: tiles in plain torch, on any device, with gradients in O(n) memory."""

from __future__ import annotations

from regard.engines.tiles.columns import columns
from regard.engines.tiles.rows import rows

name = "tiles"

__all__ = ["columns", "name", "refuses", "rows"]


def refuses(*_: object) -> str | None:
    """Why this engine will not take a case: it takes all."""
    return None
