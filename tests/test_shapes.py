"""The shapes that a call may have, and the messages of those that it may not."""

import pytest
import torch

from regard.errors import ShapeError
from regard.shapes import Sizes, repeat_heads, sizes_of, statistics_dtype

GOOD = {"query": (2, 6, 5, 7), "key": (2, 3, 11, 7), "value": (2, 3, 11, 13)}


def tensors(**shapes):
    return {name: torch.zeros(shape) for name, shape in (GOOD | shapes).items()}


def test_every_size_is_read_from_its_own_axis():
    sizes = sizes_of(**tensors())
    assert sizes == Sizes(batch=2, heads=6, kv_heads=3, queries=5, keys=11, dim=7, value_dim=13)
    assert sizes.group == 2


def test_without_value_its_dim_is_zero():
    assert sizes_of(torch.zeros(GOOD["query"]), torch.zeros(GOOD["key"])).value_dim == 0


@pytest.mark.parametrize(
    "shapes, message",
    [
        ({"query": (6, 5, 7)}, r"query must have 4 axes \(batch, heads, tokens, dim\), got \(6, 5, 7\)"),
        ({"key": (2, 3, 11, 7, 1)}, r"key must have 4 axes .*, got \(2, 3, 11, 7, 1\)"),
        ({"value": (13,)}, r"value must have 4 axes .*, got \(13,\)"),
        ({"key": (4, 3, 11, 7)}, r"batch sizes must agree, got 2 for query, 4 for key"),
        ({"value": (1, 3, 11, 13)}, r"batch sizes must agree, got 2 for query, 1 for value"),
        ({"key": (2, 3, 11, 8)}, r"query and key must have one dim, got 7 and 8"),
        ({"key": (2, 4, 11, 7)}, r"heads must be a multiple of kv_heads, got 6 heads and 4 kv_heads"),
        ({"key": (2, 12, 11, 7)}, r"heads must be a multiple of kv_heads, got 6 heads and 12 kv_heads"),
        ({"key": (2, 0, 11, 7)}, r"heads must be a multiple of kv_heads, got 6 heads and 0 kv_heads"),
        ({"value": (2, 3, 10, 13)}, r"key and value must agree .* got \(2, 3, 11, 7\) and \(2, 3, 10, 13\)"),
        ({"value": (2, 6, 11, 13)}, r"key and value must agree .* got \(2, 3, 11, 7\) and \(2, 6, 11, 13\)"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ShapeError, match=message):
        sizes_of(**tensors(**shapes))


def test_dtypes_that_do_not_fit():
    good = tensors()
    with pytest.raises(
        ShapeError, match=r"must share one dtype .* got torch.float32 .* and torch.float64 .* for key"
    ):
        sizes_of(**good | {"key": good["key"].double()})
    with pytest.raises(
        ShapeError, match=r"got torch.float32 on cpu for query and torch.bfloat16 on cpu for value"
    ):
        sizes_of(**good | {"value": good["value"].bfloat16()})
    with pytest.raises(
        ShapeError, match=r"query must be floating point \(float16 to float64\), got torch.int64"
    ):
        sizes_of(**good | {"query": good["query"].long()})
    with pytest.raises(ShapeError, match=r"query must be floating point .* got torch.complex64"):
        sizes_of(**good | {"query": good["query"].to(torch.complex64)})
    with pytest.raises(ShapeError, match=r"value must be a torch.Tensor, got list"):
        sizes_of(**good | {"value": [1.0]})


def test_devices_that_do_not_fit():
    good = tensors()
    with pytest.raises(
        ShapeError, match=r"must share one dtype and device, got .* on cpu .* on meta for key"
    ):
        sizes_of(**good | {"key": good["key"].to("meta")})


def test_statistics_are_float32_below_float64():
    assert statistics_dtype(torch.float64) is torch.float64
    assert {statistics_dtype(t) for t in (torch.float32, torch.bfloat16, torch.float16)} == {torch.float32}


def test_heads_of_one_group_stand_side_by_side():
    tensor = torch.arange(2 * 3).view(2, 3, 1, 1)
    assert repeat_heads(tensor, 2)[1, :, 0, 0].tolist() == [3, 3, 4, 4, 5, 5]
    assert repeat_heads(tensor, 1) is tensor
