"""Dense masks in the three conventions, and the messages for what is none of them."""

import re
from collections.abc import Callable

import pytest
import torch

from regard.errors import ArgumentError, MaskError
from regard.masks import dense

SHAPES = [(7, 11), (1, 1, 7, 11), (3, 1, 7, 11), (1, 2, 7, 11), (3, 2, 7, 64), (3, 2, 5, 65), (1, 1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_three_conventions_say_the_same(shape: tuple[int, ...]) -> None:
    keep = torch.rand(shape) < 0.5
    four = keep if keep.ndim == 4 else keep[None, None]
    additive = torch.zeros(shape).masked_fill(~keep, -torch.inf)
    for mask in (dense(keep=keep), dense(drop=~keep), dense(additive=additive)):
        assert torch.equal(mask.dense(*shape[-2:]), four)
        assert mask == dense(keep=keep)


def test_content_need_not_be_contiguous() -> None:
    keep = (torch.rand(24, 3, 1, 16) < 0.5).permute(1, 2, 0, 3)
    assert torch.equal(dense(keep=keep).dense(24, 16), keep)
    wide = keep.expand(3, 5, 24, 16)
    assert torch.equal(dense(keep=wide).dense(24, 16), wide)


@pytest.mark.parametrize(
    ("dtype", "blocked"),
    [
        (torch.float32, torch.finfo(torch.float32).min),
        (torch.float16, torch.finfo(torch.float16).min),
        (torch.bfloat16, -1e4),
        (torch.float64, -1e9),
        (torch.float32, -torch.inf),
    ],
)
def test_additive_blocks_with_what_models_use(dtype: torch.dtype, blocked: float) -> None:
    keep = torch.rand(5, 7) < 0.5
    additive = torch.zeros(5, 7, dtype=dtype).masked_fill(~keep, blocked)
    assert dense(additive=additive) == dense(keep=keep)


def test_one_bit_a_pair() -> None:
    keep = torch.rand(1, 1, 1024, 1024) < 0.5
    assert dense(keep=keep).bits.numel() <= keep.numel() / 8 * 1.1  # type: ignore[attr-defined]


def test_rows_start_where_offset_says() -> None:
    keep = torch.rand(3, 8) < 0.5
    assert torch.equal(dense(keep=keep, offset=2).dense(3, 8, offset=2)[0, 0], keep)
    assert not dense(keep=keep, offset=2).allows(torch.tensor([0, 1, 5, 6]), torch.tensor(0)).any()
    assert torch.equal(dense(keep=keep).dense(3, 8, offset=5)[0, 0], keep)


BOOL = torch.ones(3, 4, dtype=torch.bool)
FAILURES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: dense(), ArgumentError, "give exactly one of keep, drop, additive, got none"),
    (
        lambda: dense(BOOL),
        MaskError,
        "got a torch.bool tensor of shape (3, 4) without a name: say dense(keep=…), where True may attend, "
        "drop=…, where True is blocked, or additive=…, of 0 and −inf",
    ),
    (lambda: dense(BOOL, keep=BOOL), MaskError, "without a name"),
    (lambda: dense([[True]]), MaskError, "got list without a name"),
    (
        lambda: dense(keep=BOOL, drop=BOOL),
        ArgumentError,
        "give exactly one of keep, drop, additive, got keep and drop",
    ),
    (lambda: dense(keep=[[True]]), MaskError, "keep must be a torch.Tensor, got list"),
    (
        lambda: dense(keep=BOOL.float()),
        MaskError,
        "got torch.float32: give a mask of 0 and −inf as additive=",
    ),
    (lambda: dense(drop=BOOL.float()), MaskError, "drop must be bool, got torch.float32"),
    (lambda: dense(keep=BOOL.long()), MaskError, "got torch.int64: say which value is True, as in mask == 1"),
    (
        lambda: dense(additive=BOOL),
        MaskError,
        "additive must be floating point, got torch.bool: is it keep= or drop=?",
    ),
    (
        lambda: dense(additive=torch.tensor([[0.0, -2.5]])),
        MaskError,
        "got -2.5: values that shift scores are a bias",
    ),
    (
        lambda: dense(additive=torch.tensor([[0.0, torch.inf]])),
        MaskError,
        "got inf: values that shift scores are a bias",
    ),
    (lambda: dense(additive=torch.tensor([[0.0, torch.nan]])), MaskError, "additive must not hold NaN"),
    (lambda: dense(keep=BOOL[None]), MaskError, "got 3: (1, 3, 4); add the missing one: keep[:, None]"),
    (
        lambda: dense(drop=BOOL[0]),
        MaskError,
        "drop must have shape (queries, keys) or (batch, heads, queries, keys)",
    ),
    (lambda: dense(keep=BOOL[:0]), MaskError, "none 0, got (0, 4)"),
    (lambda: dense(keep=BOOL, offset=-4), ArgumentError, "offset must be at least -3, got -4"),
    (lambda: dense(keep=BOOL).dense(3, 5), MaskError, "it holds 3 × 4, attention has 3 × 5"),
    (
        lambda: dense(keep=BOOL).dense(3, 4, offset=0),
        MaskError,
        "attention starts at 0; give dense(…, offset=0)",
    ),
    (
        lambda: dense(keep=BOOL.expand(5, 2, 3, 4)).dense(3, 4, heads=3),
        MaskError,
        "dense(<5 × 2 × 3 × 4>) holds 2 heads",
    ),
]


@pytest.mark.parametrize("case", range(len(FAILURES)))
def test_messages(case: int) -> None:
    build, error, message = FAILURES[case]
    with pytest.raises(error, match=re.escape(message)):
        build()
