"""A mask as FlexAttention's BlockMask: the blocks that torch itself finds, and the same output."""

from itertools import chain

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.errors import MaskError
from regard.masks import (
    Causal,
    Dense,
    Mask,
    block_sparse,
    causal,
    dense,
    documents,
    global_tokens,
    near,
    padding,
    prefix,
    random_blocks,
    strided,
)

BATCH, HEADS, QUERIES, KEYS = 3, 2, 269, 397
OFFSET = KEYS - QUERIES

MASKS: list[Mask] = [
    causal(),
    near(70, 3),
    causal() & strided(7),
    random_blocks(1, block=32),
    block_sparse(torch.arange(49).view(7, 7) % 3 == 0),
    global_tokens([5, 300]),
    prefix(260),
    ~prefix(140),
    prefix([397, 1, 200]),
    padding([397, 300, 129]),
    causal() & padding([300, 97, 390], start=[97, 300, 7]),
    documents(torch.arange(KEYS) // 150),
    dense(keep=torch.ones(QUERIES, KEYS).tril(-9).bool()),
]


def by_torch(mask: Mask) -> BlockMask:
    """The blocks that torch finds from the dense mask."""

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask.allows(query + OFFSET, key, batch, head)

    return create_block_mask(mask_mod, BATCH, HEADS, QUERIES, KEYS, device="cpu")


def columns(count: Tensor, index: Tensor) -> list[list[list[list[int]]]]:
    """Per batch row, head and block of queries, the blocks of keys."""
    return [
        [[row[:n].tolist() for n, row in zip(*head, strict=True)] for head in zip(*both, strict=True)]
        for both in zip(count, index, strict=True)
    ]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.name)
def test_blocks(mask: Mask) -> None:
    """No needed block is missing and none is called full that is not; the same as torch's where rows agree."""
    ours, theirs = mask.block_mask(BATCH, HEADS, QUERIES, KEYS), by_torch(mask)
    assert ours.shape == (1, 1, QUERIES, KEYS) and ours.seq_lengths == theirs.seq_lengths
    needed = theirs.to_dense().bool().any(0).any(0)
    kept = ours.to_dense().bool()[0, 0]
    assert not bool((needed & ~kept).any())
    ours_full = columns(ours.full_kv_num_blocks, ours.full_kv_indices)[0][0]
    for theirs_full in chain(*columns(theirs.full_kv_num_blocks, theirs.full_kv_indices)):
        assert all(set(mine) <= set(true) for mine, true in zip(ours_full, theirs_full, strict=True))
    if mask.shape == (1, 1) and not isinstance(mask, Dense):
        assert torch.equal(kept, needed) and ours_full == theirs_full
        assert (
            not bool(kept.all())
            or mask.name == "causal() & strided(7)"
            or mask.name.startswith("global_tokens")
        )


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.name)
def test_flex_attention_agrees_with_dense_softmax(mask: Mask) -> None:
    query = torch.randn(BATCH, HEADS, QUERIES, 16, dtype=torch.float64)
    key, value = torch.randn(2, BATCH, HEADS, KEYS, 16, dtype=torch.float64)
    blocks = mask.block_mask(BATCH, HEADS, QUERIES, KEYS)
    output = flex_attention(query, key, value, block_mask=blocks)
    allowed = mask.dense(QUERIES, KEYS, batch=BATCH, heads=HEADS)
    weights = (query @ key.mT / 4).masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num()
    assert torch.allclose(output, weights @ value, atol=1e-12)


def test_blocks_come_from_tiles_alone() -> None:
    class Tiles(Causal):
        def _allows(self, *positions: object) -> Tensor:
            raise AssertionError("a dense mask was built")

    assert Tiles().block_mask(1, 1, 4096, 4096).to_dense().sum() == 32 * 33 / 2


def test_message() -> None:
    with pytest.raises(MaskError, match=r"padding\(\[3, 4\]\) holds 2 batch rows, attention has 5"):
        padding([3, 4]).block_mask(5, 1, 7, 7)
