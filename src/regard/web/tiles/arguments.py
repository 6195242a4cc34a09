"""What a viewer may ask of a head's map, checked once for all who answer."""

from __future__ import annotations

from regard.checks.arguments import shown, whole
from regard.errors import ArgumentError
from regard.web.tiles.protocol import MOST_WEIGHTS, SIDE


def checked_tile(queries: int, keys: int, cell: int, row: int, column: int, pool: str) -> tuple[slice, slice]:
    """The rows and the columns of cells of a tile.

    Raises:
        ArgumentError: no such cell, tile or pool.
    """
    cell = whole("cell", cell, 1)
    if cell & (cell - 1):
        raise ArgumentError(f"cell must be a power of two, got {cell}")
    if pool not in ("mean", "max"):
        raise ArgumentError(f"pool must be 'mean' or 'max', got {shown(pool)}")
    if not queries or not keys:
        raise ArgumentError(f"there are no tiles: {queries} queries, {keys} keys")
    slices = []
    for name, value, size in (("row", row, queries), ("column", column, keys)):
        many = -(-size // (cell * SIDE))
        if not 0 <= whole(name, value) < many:
            raise ArgumentError(f"{name} of a tile must be from 0 to {many - 1}, got {value}")
        slices.append(slice(value * SIDE, min((value + 1) * SIDE, -(-size // cell))))
    return slices[0], slices[1]


def checked_index(name: str, value: int, size: int) -> int:
    """The index of a query or a key.

    Raises:
        ArgumentError: there is none.
    """
    if not 0 <= whole(name, value) < size:
        raise ArgumentError(f"{name} must be from 0 to {size - 1}, got {value}")
    return value


def checked_window(queries: int, keys: int, q0: int, q1: int, k0: int, k1: int) -> None:
    """Raise unless a window lies within the call and is small enough.

    Raises:
        ArgumentError: it does not, or is not.
    """
    for first, last, size, name in ((q0, q1, queries, "queries"), (k0, k1, keys, "keys")):
        if not 0 <= whole(name, first) <= whole(name, last) <= size:
            raise ArgumentError(f"{name} of a window must lie from 0 to {size}, got {first} to {last}")
    if (q1 - q0) * (k1 - k0) > MOST_WEIGHTS:
        raise ArgumentError(f"a window must have at most {MOST_WEIGHTS} weights, got {(q1 - q0) * (k1 - k0)}")
