"""The map of one head at any size of cell, tile by tile, of which only what somebody looks at is made."""

from __future__ import annotations

from regard.record.call import Call
from regard.statistics.observation import check_index
from regard.web.tiles.head import HeadTiles
from regard.web.tiles.map_tiles import MapTiles
from regard.web.tiles.of_record import RecordTiles
from regard.web.tiles.protocol import CanceledError, Pair, Peak, Tiles

__all__ = ["CanceledError", "Pair", "Peak", "RecordTiles", "Tiles", "tiles_of"]


def tiles_of(call: Call, head: int, batch: int = 0) -> Tiles:
    """The tiles of one head of one row of the batch of a call.

    Args:
        call: with `keep="vectors"` every cell and every weight can be had, without it the levels of its map.
        head: which head.
        batch: which row of the batch.

    Raises:
        ArgumentError: no such head or row of the batch.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> model = rg.nn.MultiHeadAttention(8, 2)
        >>> with rg.watch(model, keep="vectors") as record:
        ...     _ = model(torch.zeros(1, 4, 8), mask=rg.causal())
        >>> tiles_of(record[0], head=1).tile(2, 0, 0, "max").exp()
        tensor([[1.0000,    nan],
                [0.3333, 0.3333]], dtype=torch.float16)
    """
    check_index("head", head, call.sizes.heads)
    check_index("batch", batch, call.sizes.batch)
    head, batch = head % call.sizes.heads, batch % call.sizes.batch
    if call.query is None or call.key is None or call.spec is None:
        return MapTiles(call, head, batch)
    return HeadTiles(call, head, batch)
