"""Which cells of a window hold a pair that the mask allows: by halving, as the walk of the tiles does.

Knows masks and cells; nothing of weights.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.cells import Cells
from regard.engines.walk import allows
from regard.masks import Mask, Tile
from regard.masks.window import Window

# Tokens a side of a square in which pairs are looked at one by one, unless a cell is larger.
LEAF = 256


def mark(mask: Mask | None, queries: range, keys: int, cells: Cells, known: Tensor) -> None:
    """Set `known` in the cells in which some query of these may attend some key.

    Args:
        mask: of one head; None allows every pair.
        queries: their positions. keys: how many keys they have.
        cells: where the cells lie.
        known: `(rows, columns)`, bool, in place; what is set already is not looked at.
    """
    columns = cells.keys(keys)
    side, stack = max(LEAF, cells.cell), [(queries.start, queries.stop, columns.start, columns.stop)]
    while stack:
        q0, q1, k0, k1 = stack.pop()
        if q0 >= q1 or k0 >= k1:
            continue
        rows = slice((q0 - cells.query) // cells.cell, (q1 - 1 - cells.query) // cells.cell + 1)
        at = rows, slice((k0 - cells.key) // cells.cell, (k1 - 1 - cells.key) // cells.cell + 1)
        if bool(known[at].all()):
            continue
        kind = Tile.ALL
        if mask is not None:
            kind = mask.tile(q0, q1, k0, k1)
        if kind is Tile.ALL:
            known[at] = True
        elif kind is Tile.SOME and max(q1 - q0, k1 - k0) > side:
            # Cut at multiples of the leaf from the cells' corner, so that no cell is cut unless the queries cut it.
            if q1 - q0 >= k1 - k0:
                middle = _middle(q0 - cells.query, q1 - cells.query, side) + cells.query
                stack += [(q0, middle, k0, k1), (middle, q1, k0, k1)]
            else:
                middle = _middle(k0 - cells.key, k1 - cells.key, side) + cells.key
                stack += [(q0, q1, k0, middle), (q0, q1, middle, k1)]
        elif kind is Tile.SOME and mask is not None:
            known[at] |= _pooled(mask, Window(q0, q1, k0, k1, q0), cells)


def _middle(start: int, stop: int, side: int) -> int:
    """The multiple of `side` nearest to the middle: inside, as there is more than one side between both."""
    return (start + stop + side) // (2 * side) * side


def _pooled(mask: Mask, window: Window, cells: Cells) -> Tensor:
    pairs = allows(mask, window, 1, 1, torch.device("cpu"))
    pairs = pairs.expand(1, 1, window.q1 - window.q0, window.k1 - window.k0)[0, 0]
    top, left = (window.q0 - cells.query) % cells.cell, (window.k0 - cells.key) % cells.cell
    bottom, right = -(window.q1 - cells.query) % cells.cell, -(window.k1 - cells.key) % cells.cell
    # As bytes: `any` over bools is slower.
    padded = pad(pairs.to(torch.uint8), (left, right, top, bottom))
    columns = padded.unflatten(1, (-1, cells.cell)).amax(2)
    return columns.unflatten(0, (-1, cells.cell)).amax(1).bool()
