"""Which cells of a window hold a pair that the mask allows: by halving, and by a fold of equal scores where that ends.

Knows masks and cells; nothing of a call's vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.cells import Cells
from regard.engines.windows import Rows, add_window
from regard.masks import Mask, Tile
from regard.spec import Spec

# Tokens a side of a square that is folded and no longer halved, unless a cell is larger.
LEAF = 1024


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
            known[at] |= _folded(mask, range(q0, q1), range(k0, k1), cells)


def _middle(start: int, stop: int, side: int) -> int:
    """The multiple of `side` nearest to the middle: inside, as there is more than one side between both."""
    return (start + stop + side) // (2 * side) * side


def _folded(mask: Mask, queries: range, keys: range, cells: Cells) -> Tensor:
    """The same of a square, by an engine: of scores that are 0, a weight is 1 where the mask allows the pair."""
    none, scalar = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, len(queries), dtype=torch.float64)
    spec = Spec(1.0, queries.start, mask)
    # One number stands for all of them: nothing of the length of the text is made.
    query, key = none.expand(1, 1, len(queries), 1), none.expand(1, 1, keys.stop, 1)
    top = cells.query + (queries.start - cells.query) // cells.cell * cells.cell
    left = cells.key + (keys.start - cells.key) // cells.cell * cells.cell
    rows, columns = -(-(queries.stop - top) // cells.cell), -(-(keys.stop - left) // cells.cell)
    total = torch.zeros(1, 1, rows, columns)
    square = Cells(total, torch.zeros_like(total), cells.cell, top, left)
    add_window(Rows(query, key, spec, scalar, scalar + 1.0), square)
    return square.peak[0, 0] > 0
