"""A window of the weights pooled to cells: the second fold of neighboring queries against neighboring keys alone.

Knows which engine takes a window; the engines add to what is there, so windows of many calls make one picture.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.engines import native, tiles
from regard.engines.cells import Cells
from regard.spec import Spec
from regard.statistics.table import Wanted


@dataclass(frozen=True, eq=False)
class Rows:
    """Neighboring queries of one call, all its keys, and what the first fold said of the queries.

    Attributes:
        query: `(batch, heads, queries, dim)`. key: `(batch, kv_heads, keys, dim)`.
        spec: its offset is the position of the first of these queries.
        m, l: `(batch, heads, queries)`, float64, the state's own, a learned sink merged in.
    """

    query: Tensor
    key: Tensor
    spec: Spec
    m: Tensor
    l: Tensor


def add_window(rows: Rows, cells: Cells) -> None:
    """Add the weights of these queries on the keys that the cells cover: sums to `total`, the largest to `peak`."""
    want = Wanted(output=False, cell=cells.cell)
    engine = tiles.add_window
    # C++ cuts its tasks along cells of float32 that begin at multiples of a panel's lanes.
    aligned = cells.key % native.CELL_SIDE == 0
    if aligned and native.refuses(rows.query, rows.key, None, rows.spec, want) is None:
        engine = native.add_window
    engine(rows.query, rows.key, rows.spec, rows.m, rows.l, cells)
