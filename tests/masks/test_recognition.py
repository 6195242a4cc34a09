"""Dense masks back to what they are: the right value, and the very same pairs."""

import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masks.strategies import trees
from regard.errors import MaskError
from regard.masks import (
    Dense,
    Mask,
    causal,
    documents,
    global_tokens,
    near,
    padding,
    prefix,
    random_blocks,
    recognize,
    strided,
)

N = 37
LENGTHS, STARTS = [5, 37, 23], [32, 0, 14]
IDS = [0] * 5 + [1] * 13 + [2] * 7 + [3] * 12
TWO = [IDS, IDS[::-1]]
left = padding(LENGTHS, start=STARTS)

EXACT: list[Mask] = [
    causal(), near(3), near(0), near(5, 2), near(1, 9),
    padding(LENGTHS), left, padding([5, 9, 23], start=[3, 20, 0]), padding(31), padding(0), padding([0, 7]),
    prefix(LENGTHS), prefix(9), ~prefix([1, 36, 14]), ~prefix(4), ~prefix([5, 2]) & prefix([9, 30]),
    documents(IDS), documents(TWO),
    causal() & padding(LENGTHS), causal() & left, causal() & prefix(LENGTHS), causal() & padding([0, 9]),
    near(3) & padding(LENGTHS), near(4, 1) & left, near(3) & prefix(LENGTHS), near(2, 2) & ~prefix([1, 14]),
    causal() & documents(IDS), near(2) & documents(IDS), near(3, 1) & documents(TWO),
    padding([9, 30]) & documents(TWO), causal() & padding([19, 36]) & documents(TWO),
    near(3) & padding(30, start=2) & documents(IDS),
]  # fmt: skip


def kinds(mask: Mask | None) -> set[str]:
    """The names of its parts, whatever their content."""
    return set() if mask is None else set(re.findall(r"~?[a-z]+(?=\()", mask.name))


def same(mask: Mask | None, keep: torch.Tensor, **sizes: int) -> bool:
    if mask is None:
        return bool(keep.all())
    back = mask.dense(*keep.shape[2:], batch=keep.shape[0], heads=keep.shape[1], **sizes)
    return torch.equal(back.expand_as(keep), keep)


@pytest.mark.parametrize("mask", EXACT, ids=lambda mask: mask.name)
def test_found_exactly(mask: Mask) -> None:
    keep = mask.dense(N, N)
    found = recognize(keep)
    assert same(found, keep)
    assert kinds(found) == kinds(mask)
    for copies in (keep.expand(-1, 5, -1, -1), keep.expand(-1, 5, -1, -1).contiguous()):
        assert recognize(copies) == found


@pytest.mark.parametrize(
    "mask", [m for m in EXACT if m.shape[0] == 1 and "documents" not in kinds(m)], ids=lambda m: m.name
)
def test_found_for_the_last_queries(mask: Mask) -> None:
    """Decoding with a cache: 1, 2 and 11 queries at the end of 37 keys."""
    for queries in (1, 2, 11):
        keep = mask.dense(queries, N)
        found = recognize(keep)
        assert same(found, keep) and not isinstance(found, Dense)


@pytest.mark.parametrize("mask", [causal() & left, near(3) & left], ids=lambda mask: mask.name)
def test_left_padding_is_found_while_decoding(mask: Mask) -> None:
    for queries in (1, 2, 11):
        keep = mask.dense(queries, N)
        found = recognize(keep)
        assert same(found, keep) and not isinstance(found, Dense)


def test_offset_is_the_position_of_the_first_query() -> None:
    assert recognize(torch.ones(9, 9).tril().bool()) == causal()
    assert recognize(torch.ones(5, 9).tril().bool(), offset=0) == causal()
    assert recognize(torch.ones(5, 9).tril(4).bool()) == causal()
    assert recognize(torch.ones(9, 5).tril(-4).bool()) == causal()


def test_cross_attention() -> None:
    keep = prefix([3, 11, 7]).dense(5, 11)
    assert recognize(keep) == prefix([3, 11, 7])


def test_no_mask_at_all() -> None:
    assert recognize(torch.ones(5, 7).bool()) is None
    assert recognize(torch.ones(2, 3, 7, 5).bool()) is None


@pytest.mark.parametrize("base", [None, causal()])
def test_documents_that_are_not_side_by_side(base: Mask | None) -> None:
    for ids in ([0, 1, 2, 1, 0] * 7 + [2, 2], [0] * 17 + [1, 0] + [2] * 18):
        keep = documents(ids).dense(N, N)
        keep = keep if base is None else keep & base.dense(N, N)
        found = recognize(keep)
        assert same(found, keep) and kinds(found) == kinds(base) | {"documents"}


NAMELESS = [
    ~causal(), causal() | prefix(9), causal() & (near(2) | strided(4)), global_tokens([3]) | near(2),
    random_blocks(2, block=4),
]  # fmt: skip


@pytest.mark.parametrize("mask", NAMELESS, ids=lambda mask: mask.name)
def test_the_rest_is_packed(mask: Mask) -> None:
    keep = mask.dense(N, N)
    found = recognize(keep)
    assert isinstance(found, Dense) and same(found, keep)


def test_one_wrong_pair_is_noticed() -> None:
    """Also between the queries that are looked at first."""
    for mask in (causal(), near(3), padding(31), documents(IDS), causal() & documents(IDS)):
        for query, key in ((17, 3), (18, 18), (36, 0), (1, 2)):
            keep = mask.dense(N, N).clone()
            keep[0, 0, query, key] ^= True
            found = recognize(keep)
            assert same(found, keep) and found != mask


@given(trees(), st.integers(1, 17))
def test_never_wrong(mask: Mask, queries: int) -> None:
    keep = mask.dense(17, 29)[:, :, -queries:].contiguous()
    assert same(recognize(keep), keep)


def test_heads_that_differ_are_packed() -> None:
    keep = torch.stack([causal().dense(N, N)[:, 0], near(3).dense(N, N)[:, 0]], dim=1)
    found = recognize(keep)
    assert isinstance(found, Dense) and found.shape == (1, 2) and same(found, keep)


FAILURES: list[tuple[Callable[[], object], str]] = [
    (lambda: recognize(torch.zeros(3, 3)), "keep must be bool, got torch.float32"),
    (lambda: recognize(torch.zeros(1, 3, 3).bool()), "got 3: (1, 3, 3); add the missing one"),
]


@pytest.mark.parametrize("case", range(len(FAILURES)))
def test_messages(case: int) -> None:
    build, message = FAILURES[case]
    with pytest.raises(MaskError, match=re.escape(message)):
        build()
