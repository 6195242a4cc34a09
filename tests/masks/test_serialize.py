"""Serialized masks that are damaged or hostile. The round trip is among the laws."""

import copy
import re
from typing import Any

import pytest
import torch

from regard.errors import MaskError, RegardError
from regard.masks import causal, dense, deserialize_mask, near, padding, serialize_mask


def test_what_is_packed() -> None:
    serialized, tensors = serialize_mask(causal() & ~padding([3, 5]))
    assert serialized == {
        "kind": "and",
        "masks": [
            {"kind": "causal"},
            {"kind": "not", "mask": {"kind": "padding", "lengths": {"tensor": "mask.0"}, "start": 0}},
        ],
    }
    assert tensors.keys() == {"mask.0"} and tensors["mask.0"].tolist() == [3, 5]


def nested(depth: int) -> dict[str, Any]:
    serialized: dict[str, Any] = {"kind": "causal"}
    for _ in range(depth):
        serialized = {"kind": "not", "mask": serialized}
    return serialized


DAMAGED: list[tuple[Any, str]] = [
    (None, "a serialized mask must be a dict with the entry 'kind', got None"),
    ([], "a serialized mask must be a dict with the entry 'kind', got []"),
    ({}, "a serialized mask must be one of and, or, not, causal"),
    ({"kind": "os.system"}, "got 'os.system'"),
    ({"kind": ["near"]}, "got ['near']"),
    ({"kind": "near", "before": 3}, "a serialized near mask has the wrong fields: before"),
    ({"kind": "causal", "keys": 3}, "a serialized causal mask has the wrong fields: keys"),
    ({"kind": "near", "before": -3, "after": 0}, "before must be at least 0, got -3"),
    ({"kind": "near", "before": "3", "after": 0}, "before must be a whole number, got '3'"),
    (
        {"kind": "prefix", "length": {"tensor": "x"}},
        "a serialized mask names the tensor 'x', which is missing",
    ),
    ({"tensor": "bits"}, "a serialized mask must be a dict with the entry 'kind', got {'tensor'"),
    ({"kind": "and", "masks": []}, "And must join masks, got ()"),
    ({"kind": "or", "masks": [{"kind": "causal"}, 3]}, "Or must join masks, got (causal()"),
    ({"kind": "not", "mask": None}, "Not must be of a mask, got None"),
    (
        {"kind": "dense", "bits": {"tensor": "bits"}, "keys": 999, "offset": 0},
        "packed bits of 999 keys must be",
    ),
    (
        {"kind": "dense", "bits": {"tensor": "bits"}, "keys": 3, "offset": 0},
        "past the last query and",
    ),
    (
        {"kind": "dense", "bits": {"tensor": "long"}, "keys": 3, "offset": 0},
        "packed bits must be a uint8 tensor",
    ),
    ({"kind": "dense", "bits": 3, "keys": 3, "offset": 0}, "packed bits must be a uint8 tensor"),
    (
        {"kind": "dense", "bits": {"tensor": "bits"}, "keys": 4, "offset": "a"},
        "offset must be a whole number, got 'a'",
    ),
    (nested(1000), "a serialized mask must nest at most 64 deep"),
]


@pytest.mark.parametrize("case", range(len(DAMAGED)))
def test_damaged(case: int) -> None:
    serialized, message = DAMAGED[case]
    bits = dense(keep=torch.ones(3, 4).bool()).bits  # type: ignore[attr-defined]
    with pytest.raises(RegardError, match=re.escape(message)):
        deserialize_mask(serialized, {"bits": bits, "long": bits.long()})


def test_nothing_is_changed_by_unpacking() -> None:
    serialized, tensors = serialize_mask(near(3) | padding([3, 5]))
    before = copy.deepcopy(serialized)
    assert deserialize_mask(serialized, tensors) == near(3) | padding([3, 5]) and serialized == before


def test_a_missing_tensor_is_named() -> None:
    serialized, _ = serialize_mask(padding([3, 5]))
    with pytest.raises(MaskError, match=r"names the tensor 'mask\.0', which is missing"):
        deserialize_mask(serialized, {})
