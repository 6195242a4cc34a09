"""A mask as a few lines of text. Knows nothing of single masks: each says which positions show it best."""

from __future__ import annotations

import torch

from regard.masks.tile import ALL, NONE, SOME, Tile, TiledMask

# Rows and columns of a drawing, at most.
CELLS = 8
# Cells of up to so many pairs are looked at pair by pair, when `tile` is not sure.
FINE = 256
SIGNS = {ALL: "■", SOME: "▒", NONE: "·"}


def drawing(mask: TiledMask) -> str:
    """The mask's expression, and below it a row per query and a column per key, pooled to 8 × 8 cells."""
    q_cells, k_cells = (_cells(positions) for positions in mask.span)
    lines = [mask.name, *(" ".join(SIGNS[_look(mask, q, k)] for k in k_cells) for q in q_cells)]
    height, width = len(q_cells[0]), len(k_cells[0])
    if height * width > 1:
        lines.append(f"each cell {height} × {width} positions: ■ all allowed, ▒ some, · none")
    return "\n".join(lines)


def _cells(positions: range) -> list[range]:
    size = -(-len(positions) // CELLS)
    return [positions[start : start + size] for start in range(0, len(positions), size)]


def _look(mask: TiledMask, queries: range, keys: range) -> Tile:
    tile = mask.tile(queries.start, queries.stop, keys.start, keys.stop)
    if tile is not SOME or len(queries) * len(keys) > FINE:
        return tile
    batch, heads = mask.shape
    allowed = mask.to("cpu").allows(
        torch.tensor(queries)[:, None],
        torch.tensor(keys),
        torch.arange(batch)[:, None, None, None],
        torch.arange(heads)[:, None, None],
    )
    if bool(allowed.all()):
        return ALL
    return SOME if bool(allowed.any()) else NONE
