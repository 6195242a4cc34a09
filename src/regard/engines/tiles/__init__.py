"""The engine that is always there: tiles in plain torch, on any device, with gradients in O(n) memory."""

from __future__ import annotations

from regard.engines.differentiable import differentiable
from regard.engines.protocol import two_folds
from regard.engines.tiles.backward import vjp
from regard.engines.tiles.columns import columns, weighted
from regard.engines.tiles.rows import fold
from regard.engines.tiles.windows import add_window, weights

name = "tiles"
rows = differentiable(fold, vjp)
look = two_folds

__all__ = ["add_window", "columns", "look", "name", "vjp", "refuses", "rows", "weights", "weighted"]


def refuses(*_: object) -> str | None:
    """Why this engine will not take a case: it takes all."""
    return None
