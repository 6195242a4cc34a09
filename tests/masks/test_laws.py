"""The laws that hold for every mask, on random expressions."""

import json
from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masks.strategies import BATCH, HEADS, KEYS, OFFSET, QUERIES, cuts, leaves, trees
from regard.masks import ALL, NONE, SOME, Causal, Mask, Tile, deserialize_mask, serialize_mask


def full(mask: Mask) -> torch.Tensor:
    return mask.dense(QUERIES, KEYS, batch=BATCH, heads=HEADS).expand(BATCH, HEADS, QUERIES, KEYS)


def broken_promises(mask: Mask, dense: torch.Tensor, rows: list[int], columns: list[int]) -> list[tuple]:
    """Tiles that say NONE or ALL where the dense mask says otherwise."""
    broken = []
    for q0, q1 in pairwise(rows):
        for k0, k1 in pairwise(columns):
            tile, truth = mask.tile(q0, q1, k0, k1), dense[..., q0 - OFFSET : q1 - OFFSET, k0:k1]
            if (tile is ALL and not truth.all()) or (tile is NONE and truth.any()):
                broken.append((mask.name, tile, q0, q1, k0, k1))
    return broken


@settings(max_examples=300)
@given(trees(), cuts(OFFSET, OFFSET + QUERIES), cuts(0, KEYS))
def test_tiles_keep_their_promises(mask: Mask, rows: list[int], columns: list[int]) -> None:
    assert broken_promises(mask, full(mask), rows, columns) == []


def test_a_broken_promise_is_seen() -> None:
    class Shifted(Causal):
        def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
            return super().tile(q0 + 1, q1 + 1, k0, k1)

    rows, columns = list(range(OFFSET, OFFSET + QUERIES + 1)), list(range(KEYS + 1))
    assert len(broken_promises(Shifted(), full(Shifted()), rows, columns)) == QUERIES - 1


@given(leaves(), st.integers(0, QUERIES - 1), st.integers(0, KEYS - 1))
def test_leaves_are_sure_of_a_single_pair(mask: Mask, query: int, key: int) -> None:
    truth = full(mask)[..., query, key]
    expected = ALL if truth.all() else SOME if truth.any() else NONE
    tile = mask.tile(query + OFFSET, query + OFFSET + 1, key, key + 1)
    # Labels and bits of scattered content are pooled, so that they may be unsure; nothing else is.
    pooled = mask.name.startswith(("documents", "dense")) or mask.shape[0] > 1
    assert tile is expected or (pooled and tile is SOME)


@given(trees(), trees())
def test_de_morgan(a: Mask, b: Mask) -> None:
    assert torch.equal(full(~(a & b)), full(~a | ~b))
    assert torch.equal(full(~(a | b)), full(~a & ~b))
    assert torch.equal(full(a & b), full(a) & full(b))
    assert torch.equal(full(a | b), full(a) | full(b))


@given(trees())
def test_twice_not_is_nothing(mask: Mask) -> None:
    assert ~~mask == mask
    assert torch.equal(full(~mask), ~full(mask))
    swapped = {NONE: ALL, SOME: SOME, ALL: NONE}
    for k0 in range(0, KEYS, 7):
        tile = 13, 19, k0, k0 + 5
        assert (~mask).tile(*tile) is swapped[mask.tile(*tile)]


@given(trees(), st.integers(1, 40))
def test_pairs_agree_with_dense(mask: Mask, pairs: int) -> None:
    """`allows` on arbitrary pairs, one by one, is a look-up in the dense mask."""
    batch, head = torch.randint(BATCH, (pairs,)), torch.randint(HEADS, (pairs,))
    query, key = torch.randint(QUERIES, (pairs,)), torch.randint(KEYS, (pairs,))
    allowed = mask.allows(query + OFFSET, key, batch, head)
    assert allowed.dtype == torch.bool
    assert torch.equal(allowed.expand(pairs), full(mask)[batch, head, query, key])
    one = mask.allows(int(query[0]) + OFFSET, int(key[0]), int(batch[0]), int(head[0]))
    assert bool(one) == bool(allowed.expand(pairs)[0])


@given(trees())
def test_vmap_traces_every_mask(mask: Mask) -> None:
    """The way FlexAttention evaluates a `mask_mod`."""
    traced = mask.allows
    for axes in ((None, 0, None, None), (0, None, None, None), (None, None, None, 0), (None, None, 0, None)):
        traced = torch.vmap(traced, in_dims=axes)
    positions = (
        torch.arange(OFFSET, OFFSET + QUERIES),
        torch.arange(KEYS),
        torch.arange(BATCH),
        torch.arange(HEADS),
    )
    allowed = traced(*positions)
    assert torch.equal(allowed, full(mask))


@given(trees())
def test_pack_and_unpack(mask: Mask) -> None:
    packed, tensors = serialize_mask(mask)
    back = deserialize_mask(json.loads(json.dumps(packed)), tensors)
    assert back == mask and hash(back) == hash(mask)
    assert torch.equal(full(back), full(mask))


@given(trees())
def test_moving_changes_nothing(mask: Mask) -> None:
    moved = mask.to("cpu")
    assert moved == mask and torch.equal(full(moved), full(mask))
    on_meta = mask.to("meta")
    assert on_meta.tile(13, 19, 3, 11) is mask.tile(13, 19, 3, 11)  # without a look at the device
