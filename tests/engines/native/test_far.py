"""Offsets past 2³¹ elements: strides so large that 32 bits would lose them, in files of which a few pages exist."""

import pytest
import torch

import regard as rg
from regard.engines import native

FAR = 2**31 + 41  # elements between two neighbors along one axis
SIZES = {"batch": (2, 3, 11), "heads": (1, 2, 13), "tokens": (1, 3, 2)}
AXES = {"batch": 0, "heads": 1, "tokens": 2}
WANTED = ["lse", "entropy", "distance", "received"]

pytestmark = pytest.mark.skipif(native.why_not() is not None, reason=f"no native engine: {native.why_not()}")


def far(tensor: torch.Tensor, axis: str, path) -> torch.Tensor:
    """The same numbers, FAR apart along one axis; the file between them is a hole."""
    strides = list(tensor.contiguous().stride())
    strides[AXES[axis]] = FAR
    count = FAR * (tensor.shape[AXES[axis]] - 1) + tensor.numel()
    flat = torch.from_file(str(path), shared=True, size=count, dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, strides).copy_(tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("which", ["query", "key", "value"])
@pytest.mark.parametrize("axis", SIZES)
def test_strides_past_31_bits(axis, which, dtype, tmp_path):
    batch, heads, tokens = SIZES[axis]
    inputs = {
        name: torch.randn(batch, heads, tokens, dim, dtype=dtype)
        for name, dim in (("query", 7), ("key", 7), ("value", 5))
    }
    near = rg.observe(**inputs, mask=rg.causal(), statistics=WANTED, engine="native")
    inputs[which] = far(inputs[which], axis, tmp_path / which)
    assert inputs[which].stride(AXES[axis]) == FAR
    seen = rg.observe(**inputs, mask=rg.causal(), statistics=WANTED, engine="native")
    for name in ("output", *WANTED):
        assert torch.equal(getattr(seen, name), getattr(near, name)), name


@pytest.mark.parametrize("axis", SIZES)
def test_gradients_of_strides_past_31_bits(axis, tmp_path):
    batch, heads, tokens = SIZES[axis]
    query, key = torch.randn(2, batch, heads, tokens, 7)
    shares = []
    for place in (None, tmp_path / "key"):
        far_key = key.clone() if place is None else far(key, axis, place)
        mine = query.clone().requires_grad_()
        rg.observe(mine, far_key, far_key, statistics=["entropy"], engine="native").entropy.sum().backward()
        shares.append(mine.grad)
    assert torch.equal(*shares)


def test_a_bias_with_rows_past_31_bits(tmp_path):
    query, key = torch.randn(1, 3, 2, 7), torch.randn(1, 3, 11, 7)
    bias = torch.randn(1, 1, 2, 11)
    near = rg.observe(query, key, key, bias=bias, engine="native")
    seen = rg.observe(query, key, key, bias=far(bias, "tokens", tmp_path / "bias"), engine="native")
    assert torch.equal(seen.output, near.output)
