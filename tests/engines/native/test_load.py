"""Numbers of 16 bits reach the folds exactly, in every build: a single key hands its value to each query."""

import pytest
import torch

import regard as rg

pytestmark = pytest.mark.usefixtures("build")


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Every finite number of this type that is 0 or a normal float32: others are flushed to 0."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    size = every.float().abs()
    return every[size.isfinite() & ((size == 0) | (size >= torch.finfo(torch.float32).smallest_normal))]


@pytest.mark.parametrize("queries", [1, 53], ids=["few queries", "many"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_number_is_read_exactly(dtype, queries):
    value = numbers(dtype)[None, None, None]
    one = torch.ones(1, 1, 1, 2, dtype=dtype)
    seen = rg.observe(one.expand(-1, -1, queries, -1), one, value, statistics=(), engine="native")
    assert torch.equal(seen.output, value.expand(-1, -1, queries, -1))


@pytest.mark.parametrize("queries", [1, 53], ids=["few queries", "many"])
def test_small_numbers_of_float16_are_not_flushed(queries):
    """Queries below 2⁻¹⁴ against keys so large that their products count."""
    query = torch.arange(1, 8).to(torch.float16)[None, None, None] * 2.0**-17
    key = torch.full((1, 1, 1, 7), 2.0**15, dtype=torch.float16)
    seen = rg.observe(query.expand(-1, -1, queries, -1), key, scale=1.0, statistics="lse", engine="native")
    assert (seen.lse - 28 * 0.25).abs().max() < 1e-5
