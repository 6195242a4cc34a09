"""A mask as a few lines of text, and as a picture. Knows no single masks: each says which positions show it best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from regard import html
from regard.masks.tile import ALL, NONE, SOME, Tile, TiledMask

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rows and columns of a drawing, at most.
CELLS = 8
# Cells of up to so many pairs are looked at pair by pair, when `tile` is not sure.
FINE = 256
SIGNS = {ALL: "■", SOME: "▒", NONE: "·"}

PICTURE_CELLS = 32  # rows and columns of a picture, at most
PICTURE_SIDE = 256  # pixels
PICTURE_FINE = 1 << 20  # a picture of up to so many pairs is looked at pair by pair, all cells at once
SHADES = {NONE: html.NONE, SOME: html.SOME, ALL: html.ALL}


def drawing(mask: TiledMask) -> str:
    """The mask's expression, and below it a row per query and a column per key, pooled to 8 × 8 cells."""
    q_cells, k_cells = (_cells(positions, CELLS) for positions in mask.span)
    lines = [mask.name, *(" ".join(SIGNS[_look(mask, q, k)] for k in k_cells) for q in q_cells)]
    height, width = len(q_cells[0]), len(k_cells[0])
    if height * width > 1:
        lines.append(f"each cell {height} × {width} positions: ■ all allowed, ▒ some, · none")
    return "\n".join(lines)


def card(mask: TiledMask) -> str:
    """The mask for a notebook: its expression and a picture, pooled to 32 × 32 cells; HTML of bounded size.

    At any length it answers at once: a mask of many pairs is asked `tile` only, cell by cell, for which SOME is always
    a safe answer.
    """
    queries, keys = mask.span
    q_cells, k_cells = _cells(queries, PICTURE_CELLS), _cells(keys, PICTURE_CELLS)
    facts = [f"queries {_ends(queries)} down", f"keys {_ends(keys)} across"]
    height, width = len(q_cells[0]), len(k_cells[0])
    if height * width > 1:
        facts.append(f"each cell {height} × {width} positions")
    batch, heads = mask.shape
    if batch * heads > 1:
        facts.append(f"of {batch} batch rows × {heads} heads together")
    answers = _answers(mask, q_cells, k_cells)
    image = html.picture(answers, PICTURE_SIDE, f"drawing of {mask.name}"[:200], gap=1)
    legend = html.swatches(
        [(SHADES[ALL], "may attend"), (SHADES[SOME], "some may"), (SHADES[NONE], "none may")]
    )
    return html.card(html.heading("Mask", mask.name, facts), html.pictures([("", image)]), legend)


def _cells(positions: range, most: int) -> list[range]:
    size = -(-len(positions) // most)
    return [positions[start : start + size] for start in range(0, len(positions), size)]


def _ends(positions: range) -> str:
    return f"{positions.start:,} … {positions.stop - 1:,}".replace(",", "\u202f")


def _answers(mask: TiledMask, q_cells: list[range], k_cells: list[range]) -> NDArray[np.uint8]:
    """The level of each cell, `(q_cells, k_cells)`."""
    batch, heads = mask.shape
    queries = range(q_cells[0].start, q_cells[-1].stop)
    keys = range(k_cells[0].start, k_cells[-1].stop)
    if len(queries) * len(keys) * batch * heads > PICTURE_FINE:
        tiles = [[mask.tile(q.start, q.stop, k.start, k.stop) for k in k_cells] for q in q_cells]
        return np.array([[SHADES[tile] for tile in row] for row in tiles], np.uint8)
    allowed = _allowed(mask, queries, keys).expand(batch, heads, len(queries), len(keys)).numpy()
    some, every = allowed.any((0, 1)), allowed.all((0, 1))
    for axis, parts in enumerate((q_cells, k_cells)):
        starts = [part.start - parts[0].start for part in parts]
        some = np.logical_or.reduceat(some, starts, axis)
        every = np.logical_and.reduceat(every, starts, axis)
    shades = np.full(some.shape, SHADES[NONE], np.uint8)
    shades[some] = SHADES[SOME]
    shades[every] = SHADES[ALL]
    return shades


def _look(mask: TiledMask, queries: range, keys: range) -> Tile:
    tile = mask.tile(queries.start, queries.stop, keys.start, keys.stop)
    if tile is not SOME or len(queries) * len(keys) > FINE:
        return tile
    allowed = _allowed(mask, queries, keys)
    if bool(allowed.all()):
        return ALL
    if bool(allowed.any()):
        return SOME
    return NONE


def _allowed(mask: TiledMask, queries: range, keys: range) -> Tensor:
    """Which of these pairs are allowed: `(batch or 1, heads or 1, queries, keys)`, or what broadcasts to it."""
    batch, heads = mask.shape
    return mask.to("cpu").allows(
        torch.tensor(queries)[:, None],
        torch.tensor(keys),
        torch.arange(batch)[:, None, None, None],
        torch.arange(heads)[:, None, None],
    )
