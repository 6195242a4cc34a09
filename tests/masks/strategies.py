"""Random masks for the property tests, every leaf among them, with content for a batch of 3 and 2 heads."""

import torch
from hypothesis import strategies as st

from regard.masks import (
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

BATCH, HEADS, QUERIES, KEYS = 3, 2, 17, 29
OFFSET = KEYS - QUERIES


def counts(most: int) -> st.SearchStrategy:
    one = st.integers(0, most)
    return one | st.lists(one, min_size=BATCH, max_size=BATCH).map(torch.tensor)


def ids() -> st.SearchStrategy:
    shape = st.sampled_from([(KEYS,), (1, KEYS), (BATCH, KEYS)])
    scattered = shape.map(lambda shape: torch.randint(-2, 3, shape))
    side_by_side = shape.map(lambda shape: (torch.rand(shape) < 0.2).cumsum(-1) * 7 % 11)
    return scattered | side_by_side


def dense_masks() -> st.SearchStrategy[Mask]:
    shape = st.sampled_from([(1, 1), (1, HEADS), (BATCH, 1), (BATCH, HEADS)])
    share = st.sampled_from([0.0, 0.3, 0.97, 1.1])
    return st.builds(lambda shape, share: dense(keep=torch.rand(*shape, QUERIES, KEYS) < share), shape, share)


def block_grids(*positions: int) -> st.SearchStrategy[Mask]:
    """Blocks of any size that cover so many positions of queries and keys."""
    share = st.sampled_from([0.0, 0.3, 0.9, 1.1])

    def grid(block: int, share: float) -> Mask:
        shape = [-(-size // block) for size in positions]
        return block_sparse(torch.rand(*shape) < share, block)

    return st.builds(grid, st.sampled_from([1, 2, 5, 7, 16, 64]), share)


def spans() -> st.SearchStrategy[Mask]:
    """Padding whose real tokens end within the sequence."""
    most = KEYS // 2
    return st.builds(lambda lengths, start: padding(lengths, start=start), counts(most), counts(most))


def leaves() -> st.SearchStrategy[Mask]:
    few, small, keys = st.integers(1, 9), st.integers(0, KEYS), st.sampled_from([None, KEYS])
    return st.one_of(
        st.just(causal()),
        st.builds(near, small, small),
        few.map(strided),
        st.builds(random_blocks, st.integers(1, 4), few, small, keys=keys),
        st.lists(small, max_size=6).map(global_tokens),
        counts(KEYS + 3).map(prefix),
        spans(),
        ids().map(documents),
        dense_masks(),
        block_grids(KEYS, KEYS),
    )


def trees() -> st.SearchStrategy[Mask]:
    """Leaves under up to a handful of operators."""
    return st.recursive(
        leaves(),
        lambda mask: st.one_of(
            mask.map(lambda m: ~m),
            st.builds(lambda a, b: a & b, mask, mask),
            st.builds(lambda a, b: a | b, mask, mask),
        ),
        max_leaves=5,
    )


def cuts(start: int, stop: int) -> st.SearchStrategy[list[int]]:
    """Cut points of [start, stop), both ends among them."""
    inner = st.lists(st.integers(start + 1, stop - 1), max_size=6)
    return inner.map(lambda points: [start, *sorted(set(points)), stop])
