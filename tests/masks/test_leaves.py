"""Each mask against its definition in plain Python, pair by pair; its tiles; its messages."""

import re
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch

from regard.errors import ArgumentError, MaskError
from regard.masks import (
    ALL,
    NONE,
    SOME,
    Mask,
    as_mask,
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

QUERIES, KEYS = 13, 19
OFFSETS = (6, 0, -4)  # queries at the end, at the start, and some before the first key
IDS = [4, 4, 4, -1, -1, 7, 7, 7, 7, 4, 4, 0, 0, 0, 0, 0, 9, 9, 9]
LENGTHS, STARTS = [0, 11, 19], [5, 3, 0]

DEFINITIONS: dict[str, tuple[Mask, Callable[[int, int, int], bool]]] = {
    "causal": (causal(), lambda b, q, k: k <= q),
    "near": (near(3), lambda b, q, k: k in (q, q - 1, q - 2, q - 3)),
    "near both": (near(2, 5), lambda b, q, k: k in range(q - 2, q + 6)),
    "self": (near(0), lambda b, q, k: k == q),
    "strided": (strided(5), lambda b, q, k: abs(q - k) in (0, 5, 10, 15, 20)),
    "tokens": (global_tokens([2, 11, 2, 40]), lambda b, q, k: k in (2, 11) or q in (2, 11)),
    "no tokens": (global_tokens([]), lambda b, q, k: False),
    "prefix": (prefix(7), lambda b, q, k: k < 7),
    "prefix per row": (prefix([3, 0, 30]), lambda b, q, k: k < (3, 0, 30)[b]),
    "padding": (padding(LENGTHS), lambda b, q, k: 0 <= q < LENGTHS[b] and k < LENGTHS[b]),
    "padding left": (
        padding([14, 16, 19], start=STARTS),
        lambda b, q, k: STARTS[b] <= q < 19 and STARTS[b] <= k < 19,
    ),
    "padding around": (
        padding(4, start=STARTS),
        lambda b, q, k: 0 <= min(q, k) - STARTS[b] <= max(q, k) - STARTS[b] < 4,
    ),
    "negation": (~causal(), lambda b, q, k: k > q),
    "conjunction": (causal() & near(4, 4) & prefix(9), lambda b, q, k: k in range(q - 4, min(q + 1, 9))),
    "disjunction": (causal() & near(1) | global_tokens([3]), lambda b, q, k: k in (q, q - 1) or 3 in (q, k)),
}
UNSURE = ("padding around", "conjunction", "disjunction")  # of some tiles: they say SOME


def truth(rule: Callable[[int, int, int], bool], batch: int, offset: int) -> torch.Tensor:
    pairs = [[[rule(b, q + offset, k) for k in range(KEYS)] for q in range(QUERIES)] for b in range(batch)]
    return torch.tensor(pairs)[:, None]


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_definition(name: str, offset: int) -> None:
    mask, rule = DEFINITIONS[name]
    allowed = mask.dense(QUERIES, KEYS, offset=offset)
    assert allowed.shape == (mask.shape[0], 1, QUERIES, KEYS)
    assert torch.equal(allowed, truth(rule, mask.shape[0], offset))


@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("block", [1, 3, 6, 64])
def test_blocks(offset: int, block: int) -> None:
    keep = torch.rand(-(-KEYS // block), -(-KEYS // block)) < 0.5
    mask = block_sparse(keep.tolist(), block)
    expected = truth(lambda b, q, k: bool(keep[q // block, k // block]), 1, offset)
    assert torch.equal(mask.dense(QUERIES, KEYS, offset=offset), expected)
    # Exact whatever the tile: SOME only where both kinds of pair occur.
    for height, width in product((1, 3, 5), (1, 2, 7)):
        for q, k in product(range(QUERIES - height), range(KEYS - width)):
            part = expected[..., q : q + height, k : k + width]
            want = ALL if part.all() else SOME if part.any() else NONE
            assert mask.tile(q + offset, q + offset + height, k, k + width) is want
    far = mask.allows(torch.tensor([-1, 0, 10**6, 0]), torch.tensor([0, -1, 0, 10**6]))
    assert not far.any() and mask.tile(-9, 0, 0, 3) is NONE and mask.tile(10**6, 10**6 + 1, 0, 3) is NONE


@pytest.mark.parametrize(
    "ids", [IDS, [IDS, IDS[::-1], [3] * 19], torch.tensor([IDS]), np.array(IDS, dtype=np.int32)]
)
def test_documents(ids: list | torch.Tensor | np.ndarray) -> None:
    mask = documents(ids)
    rows = np.atleast_2d(np.asarray(ids))
    expected = torch.from_numpy(rows[:, 6:, None] == rows[:, None, :])[:, None]
    assert torch.equal(mask.dense(QUERIES, KEYS), expected)
    outside = mask.allows(torch.tensor([-1, 19, 3, 3]), torch.tensor([-1, 19, -1, 19]))
    assert not outside.any()


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name not in UNSURE])
def test_tiles_are_exact(name: str, offset: int) -> None:
    """SOME only where both kinds of pair occur: nothing is walked in vain."""
    mask, rule = DEFINITIONS[name]
    allowed = truth(rule, mask.shape[0], offset)
    for height, width in product((1, 3, 5), (1, 2, 7)):
        for q, k in product(range(QUERIES - height), range(KEYS - width)):
            part = allowed[..., q : q + height, k : k + width]
            expected = ALL if part.all() else SOME if part.any() else NONE
            got = mask.tile(q + offset, q + offset + height, k, k + width)
            assert got is expected, (name, offset, q, height, k, width)


def test_tiles_of_documents_side_by_side_are_exact() -> None:
    ids = torch.tensor([[5] * 7 + [2] * 23 + [9] * 3 + [0] * 34, [1] * 67])
    mask, one = documents(ids), documents(ids[0])
    for masks, content in ((mask, ids), (one, ids[:1])):
        allowed = content[:, :, None] == content[:, None, :]
        for q, k in product(range(0, 67, 5), range(0, 67, 3)):
            part = allowed[:, q : q + 5, k : k + 3]
            expected = ALL if part.all() else SOME if part.any() else NONE
            assert masks.tile(q, min(q + 5, 67), k, min(k + 3, 67)) is expected
    assert one.tile(60, 70, 62, 67) is SOME and one.tile(67, 70, 0, 3) is NONE


def test_tiles_of_scattered_documents_see_blocks_apart() -> None:
    ids = torch.cat([torch.tensor([0, 1] * 64), torch.tensor([2, 3] * 64)])
    mask = documents(ids)
    assert mask.tile(0, 128, 128, 256) is NONE
    assert mask.tile(0, 128, 0, 128) is SOME


def test_tiles_of_a_dense_mask_skip_empty_cells() -> None:
    keep = torch.zeros(2, 3, 200, 330, dtype=torch.bool)
    keep[:, :, 64:192, 128:320] = True
    keep[1, 2, 5, 7] = True
    mask = dense(keep=keep, offset=1000)
    assert mask.tile(1064, 1192, 128, 320) is ALL
    assert mask.tile(1064, 1192, 0, 128) is NONE
    assert mask.tile(1000, 1064, 0, 64) is SOME
    assert mask.tile(900, 1000, 0, 330) is NONE and mask.tile(1200, 1300, 0, 330) is NONE
    assert mask.tile(1100, 1101, 130, 400) is SOME
    full = dense(keep=torch.ones(67, 131, dtype=torch.bool))
    assert full.tile(64, 131, 0, 131) is ALL  # the ragged end counts
    assert full.tile(63, 131, 0, 131) is full.tile(64, 132, 0, 131) is full.tile(64, 131, 0, 132) is SOME


@pytest.mark.parametrize("keys", [None, 1024])
def test_random_draws_as_many_blocks_as_asked(keys: int | None) -> None:
    mask = random_blocks(3, block=16, seed=5, keys=keys)
    allowed = mask.dense(1024, 1024)[0, 0]
    cells = allowed.unflatten(0, (64, 16)).unflatten(2, (64, 16)).permute(0, 2, 1, 3).flatten(2)
    assert bool((cells.all(-1) == cells.any(-1)).all())  # whole blocks
    blocks = cells.any(-1)
    expected = torch.arange(1, 65).clamp(max=3) if keys is None else torch.full((64,), 3)
    assert torch.equal(blocks.sum(1), expected)
    assert bool(blocks.triu(1).any()) == (keys is not None)


def test_random_is_a_function_of_seed_and_position() -> None:
    long, short = random_blocks(2, block=8).dense(512, 512), random_blocks(2, block=8).dense(100, 300)
    assert torch.equal(long[..., 200:300, :300], short)
    assert not torch.equal(long, random_blocks(2, block=8, seed=1).dense(512, 512))
    # Pinned, so that a record means the same in every later version.
    pinned = random_blocks(2, block=1).dense(8, 8)[0, 0]
    blocks = [[0], [0, 1], [0, 1], [2, 3], [2, 4], [0, 3], [0, 2], [0, 2]]
    assert [row.nonzero()[:, 0].tolist() for row in pinned] == blocks


def test_random_is_uniform() -> None:
    """Chi-square of how often each of 32 blocks is drawn by 4096 blocks of queries: 31 degrees of freedom."""
    mask = random_blocks(4, block=1, seed=3, keys=32)
    counts = mask.dense(4096, 32, offset=0)[0, 0].sum(0).double()
    expected = 4096 * 4 / 32
    statistic = float(((counts - expected) ** 2 / (expected * (1 - 4 / 32))).sum() * (31 / 32))
    assert 10 < statistic < 65  # 1e-4 on either side


def test_values() -> None:
    assert causal() & near(3) == causal() & near(3) and causal() & near(3) != near(3) & causal()
    assert padding([3, 5]) == padding(torch.tensor([3, 5])) and padding([3, 5]) != padding([3, 4])
    assert padding(3) != padding([3]) and prefix(3) != padding(3)
    assert hash(documents(IDS)) == hash(documents(torch.tensor(IDS)))
    assert dense(keep=torch.ones(2, 3).bool()) == dense(drop=torch.zeros(2, 3).bool())
    assert len({causal(), causal(), near(1), ~near(1)}) == 3
    with pytest.raises(AttributeError, match="cannot assign to field"):
        near(3).before = 4  # type: ignore[misc]


def test_joined_masks_are_one_node() -> None:
    a, b, c = causal(), near(3), prefix(2)
    assert (a & b & c).masks == (a, b, c) == (a & (b & c)).masks  # type: ignore[attr-defined]
    assert (a | b & c).masks == (a, b & c)  # type: ignore[attr-defined]


FAILURES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: near(-1), ArgumentError, "before must be at least 0, got -1"),
    (lambda: near(2, -3), ArgumentError, "after must be at least 0, got -3"),
    (lambda: near(2.5), ArgumentError, "before must be a whole number, got 2.5"),
    (lambda: near(True), ArgumentError, "before must be a whole number, got True"),
    (lambda: strided(0), ArgumentError, "step must be at least 1, got 0"),
    (lambda: random_blocks(0), ArgumentError, "count must be at least 1, got 0"),
    (lambda: random_blocks(2, block=0), ArgumentError, "block must be at least 1, got 0"),
    (lambda: random_blocks(2, seed=-1), ArgumentError, "seed must be at least 0, got -1"),
    (
        lambda: random_blocks(2, keys=100).dense(9, 99),
        MaskError,
        "must be drawn among the keys of attention, which has 99",
    ),
    (
        lambda: global_tokens([3, -2]),
        ArgumentError,
        "indices are absolute positions and must be at least 0, got -2",
    ),
    (lambda: global_tokens([2**40]), ArgumentError, "indices must be at most 16777216, got 1099511627776"),
    (lambda: global_tokens([0.5]), ArgumentError, "indices must be whole numbers, got torch.float32"),
    (lambda: global_tokens(["a"]), ArgumentError, "indices must be whole numbers, got list ['a']"),
    (
        lambda: global_tokens(torch.ones(2, 2).long()),
        MaskError,
        "indices must have one axis (tokens,), got shape (2, 2)",
    ),
    (lambda: prefix(-1), ArgumentError, "length must be at least 0, got -1"),
    (lambda: prefix(1.5), ArgumentError, "length must be a whole number, got 1.5"),
    (lambda: prefix([3, -1]), ArgumentError, "length must be at least 0, got -1"),
    (lambda: prefix(torch.ones(3)), ArgumentError, "length must be whole numbers, got torch.float32"),
    (
        lambda: padding(torch.ones(2, 3).long()),
        MaskError,
        "lengths must be an int or have shape (batch,), got shape",
    ),
    (
        lambda: padding([3, 4], start=[1, 1, 1]),
        MaskError,
        "lengths and start must have one batch, got 2 and 3",
    ),
    (
        lambda: padding([3, 8]).dense(7, 7),
        MaskError,
        "must end within the sequence, got an end at 8 for 7 keys",
    ),
    (
        lambda: padding([3, 4]).dense(7, 7, batch=3),
        MaskError,
        "padding([3, 4]) holds 2 batch rows, attention has 3",
    ),
    (
        lambda: (causal() & ~padding([3, 4])).dense(7, 7, batch=3),
        MaskError,
        "holds 2 batch rows, attention has 3",
    ),
    (lambda: block_sparse([[True]], block=0), ArgumentError, "block must be at least 1, got 0"),
    (
        lambda: block_sparse(torch.ones(2, 2)),
        MaskError,
        "keep must be bool (blocks of queries, blocks of keys), at least 1 of each, got torch.float32 of shape (2, 2)",
    ),
    (lambda: block_sparse([[True], [True, False]]), MaskError, "keep must be bool (blocks of queries"),
    (
        lambda: block_sparse(torch.ones(2, 0).bool()),
        MaskError,
        "at least 1 of each, got torch.bool of shape (2, 0)",
    ),
    (
        lambda: block_sparse([[True]], 8).dense(3, 9),
        MaskError,
        "the blocks must cover every position, got 9 keys",
    ),
    (
        lambda: block_sparse([[True]], 8).dense(3, 2),
        MaskError,
        "got 2 keys and queries at positions -1 to 1",
    ),
    (lambda: documents(torch.zeros(3)), ArgumentError, "ids must be whole numbers, got torch.float32"),
    (
        lambda: documents([[[1]]]),
        MaskError,
        "ids must have shape (tokens,) or (batch, tokens), got (1, 1, 1)",
    ),
    (lambda: documents([]), MaskError, "ids must have shape (tokens,) or (batch, tokens), got (0,)"),
    (lambda: documents(IDS).dense(7, 23), MaskError, "every position must have an id, got 23 keys"),
    (
        lambda: documents(IDS).dense(19, 7),
        MaskError,
        "got 7 keys and queries at positions -12 to 6",
    ),
    (
        lambda: causal() & torch.ones(3, 3).bool(),
        MaskError,
        "does not say whether True means may attend or blocked",
    ),
    (
        lambda: as_mask(torch.ones(3, 3).bool()),
        MaskError,
        "wrap it as dense(keep=…) (True: may attend), dense(drop=…)",
    ),
    (lambda: as_mask(torch.ones(3, 3)), MaskError, "got a torch.float32 tensor of shape (3, 3)"),
    (
        lambda: as_mask("causal"),
        MaskError,
        "mask must be a mask such as causal() or near(3), or None, got str",
    ),
]


@pytest.mark.parametrize("case", range(len(FAILURES)))
def test_messages(case: int) -> None:
    build, error, message = FAILURES[case]
    with pytest.raises(error, match=re.escape(message)):
        build()


def test_a_mask_joins_masks_only() -> None:
    assert as_mask(None) is None and as_mask(causal()) == causal()
    with pytest.raises(TypeError, match="unsupported operand"):
        causal() & None  # type: ignore[operator]
