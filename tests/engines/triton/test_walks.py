"""Masks as intervals, spans and lists of tiles: each says the same as the dense mask."""

from functools import reduce
from operator import and_

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from helpers.cases import masks
from regard.engines.triton.intervals import interval, spans
from regard.engines.triton.tile_lists import lists_of
from regard.engines.triton.tile_shapes import TABLE, plan, splits_of
from regard.shapes import Sizes

CPU = torch.device("cpu")


@st.composite
def places(draw):
    """Batch, heads, queries, keys and offset."""
    torch.manual_seed(draw(st.integers(0, 99)))
    queries, keys = draw(st.sampled_from([1, 7, 37, 71])), draw(st.sampled_from([1, 5, 67, 97]))
    return 2, 3, queries, keys, keys - queries if draw(st.booleans()) else draw(st.integers(0, 40))


@st.composite
def runs(draw):
    """A mask of one run of keys per query, and where it stands."""
    place = draw(places())
    end = max(place[3], place[4] + place[2])
    one = st.integers(0, end)
    count = one | st.lists(st.integers(0, end), min_size=2, max_size=2)
    leaves = [
        st.just(rg.causal()),
        st.builds(rg.near, st.integers(0, 70), st.integers(0, 20)),
        st.builds(rg.prefix, count),
        st.builds(lambda start: ~rg.prefix(start), count),
        st.builds(lambda start, stop: rg.padding(max(0, stop - start), start=start), one, one),
    ]
    if place[4] >= 0:
        ids = torch.randint(5, (2, end)).sort(1).values
        leaves.append(st.sampled_from([rg.documents(ids), rg.documents(ids[0])]))
    parts = draw(st.lists(st.one_of(leaves), min_size=1, max_size=3))
    return reduce(and_, parts), place


@settings(max_examples=150)
@given(runs())
def test_intervals_and_spans(run):
    mask, (batch, heads, queries, keys, offset) = run
    low, high = limits = interval(mask, queries, keys, offset, CPU)
    dense = mask.dense(queries, keys, offset=offset, batch=batch, heads=heads).expand(batch, heads, -1, -1)
    inside = (torch.arange(keys) >= low[..., None]) & (torch.arange(keys) < high[..., None])
    assert torch.equal(inside[:, None].expand_as(dense), dense)
    shift = offset % 16
    for row, tiles in enumerate(spans(limits, keys, shift, (16, 32))):
        for tile, (start, clean, end, stop) in enumerate(tiles.tolist()):
            assert start <= clean <= end <= stop
            part = torch.nn.functional.pad(inside[row], (0, 0, shift, -(queries + shift) % 16))
            part = part[:, tile * 32 : tile * 32 + 32].unflatten(0, (-1, 16))
            met = part.any(2).any(1).nonzero().flatten().tolist()
            assert (start, stop) == ((met[0], met[-1] + 1) if met else (start, start))
            assert part[clean:end].all()


@pytest.mark.parametrize(
    "mask",
    [
        rg.causal(),
        rg.causal() & rg.near(3),
        rg.padding(9) & rg.causal(),
        ~rg.prefix([1, 2]),
        rg.documents([0, 0, 1, 1, 1, 2, 2, 2, 2]),
    ],
)
def test_what_needs_no_walk(mask):
    assert interval(mask, 9, 9, 0, CPU) is not None


@pytest.mark.parametrize(
    "mask", [rg.causal() | rg.near(3), rg.strided(2), ~rg.causal(), rg.documents([0, 1, 0])]
)
def test_what_needs_one(mask):
    assert interval(mask, 3, 3, 0, CPU) is None


@settings(max_examples=150)
@given(st.data(), places(), st.sampled_from([(1 << 30, -(1 << 30)), (-2, 3)]), st.sampled_from([0, 40]))
def test_lists_hold_the_mask(data, place, near, heading):
    batch, heads, queries, keys, offset = place
    mask = data.draw(masks(*place))
    sizes = Sizes(batch, heads, heads, queries, keys, 4, 4)
    lists = lists_of(mask, sizes, offset, 32, near, heading, CPU)
    dense = mask.dense(queries, keys, offset=offset).expand(*mask.shape, queries, keys)
    for masking, transposed in ((lists.by_query(), False), (lists.by_key(), True)):
        built = torch.zeros(*mask.shape, lists.grid[0] * 32, lists.grid[1] * 32, dtype=torch.bool)
        for kind, starts in ((masking.full, masking.full_starts), (masking.partial, masking.partial_starts)):
            for tile in range(len(starts) - 1):
                for i in range(starts[tile], starts[tile + 1]):
                    row, column = (kind[i], tile) if transposed else (tile, kind[i])
                    bits = -1 if kind is masking.full else masking.places[i]
                    block = torch.ones(32, 32, dtype=torch.bool)
                    if bits >= 0:
                        block = (masking.bits[bits] >> torch.arange(32)) & 1 == 1
                    if kind is masking.full:
                        step = column * 32 - (row + offset // 32) * 32 + torch.arange(-31, 32)
                        assert not ((near[0] <= step) & (step <= near[1])).any() and column * 32 >= heading
                    built[..., row * 32 : row * 32 + 32, column * 32 : column * 32 + 32] = block
        shift = offset % 32
        assert torch.equal(built[..., shift : shift + queries, :keys], dense)


def test_plans():
    assert plan("rows", 2, 96, (9, 0), dense=False).descriptors
    assert plan("rows", 2, 96, (9, 0), dense=True).stages == 1
    for kernel in ("rows", "columns", "gradients"):
        for itemsize in (2, 4):
            assert plan(kernel, itemsize, 256, (8, 0), dense=False) in {
                p for both in TABLE.values() for p in both
            }
    assert (
        splits_of(1, 131072, 64) == 128 and splits_of(10_000, 131072, 64) == 1 and splits_of(1, 64, 64) == 1
    )
