"""A lone weight of 0.5 is seen at every level of the map, from one token a cell to all tokens in one."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.dense_tiles import observed_call
from regard.record import Call
from regard.web.tiles import Peak, tiles_of

# Two tiles of the base a side.
TOKENS = 8317


def planted(tokens: int, query: int, key: int, cells: int | None = None) -> Call:
    """Attention that is uniform but for one pair, whose weight is 0.5."""
    queries, keys = torch.zeros(1, 1, tokens, 2), torch.zeros(1, 1, tokens, 2)
    queries[0, 0, query, 0] = 1.0
    # All others have a score of 0 each.
    keys[0, 0, key, 0] = math.log(tokens - 1)
    return observed_call(queries, keys, cells=cells, scale=1.0)


@settings(max_examples=3)
@given(st.integers(0, TOKENS - 1), st.integers(0, TOKENS - 1), st.sampled_from([None, 32]))
def test_a_lone_weight_is_seen_at_every_level(query, key, cells):
    tiles = tiles_of(planted(TOKENS, query, key, cells), 0)
    cell = 1
    while cell < 2 * TOKENS:
        side = 256 * cell
        tile = tiles.tile(cell, query // side, key // side, "max")
        row, column = query % side // cell, key % side // cell
        assert tile[row, column] == torch.tensor(0.5).log().half(), cell
        cell *= 2
    assert tiles.peaks(1, away=abs(query - key), first=key) == [
        Peak(query, key, pytest.approx(0.5, rel=1e-5))
    ]
