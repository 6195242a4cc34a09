"""A spec as plain values and tensors, and back: for the records on disk and for the operators in compiled graphs.

Knows the fields of a spec and which biases are numbers alone; it knows no files and no graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.errors import ArgumentError
from regard.masks import deserialize_mask, serialize_mask
from regard.shapes import Sizes
from regard.spec.bias import Alibi, Bias, Dense, Logarithm, Relative
from regard.spec.spec import Spec

BIASES: dict[str, type[Bias]] = {"dense": Dense, "alibi": Alibi, "relative": Relative, "logarithm": Logarithm}
WITHOUT_TENSOR = ("logarithm",)


def encode(spec: Spec) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The spec as a dict that JSON can hold, and the tensors that belong to it by name.

    Returns:
        `{"scale", "offset", "softcap", "mask", "bias", "sink_logit"}`: the mask as `serialize_mask` gives it, the
        bias by the name of its kind, the sink as whether there is one. Tensors: those of the mask, `bias`,
        `sink_logit`.

    Raises:
        MaskError: the mask is Python code.
        ArgumentError: the bias is Python code.
    """
    body: dict[str, Any] = {"scale": spec.scale, "offset": spec.offset, "softcap": spec.softcap, "mask": None}
    tensors: dict[str, Tensor] = {}
    if spec.mask is not None:
        body["mask"], tensors = serialize_mask(spec.mask)
    if spec.sink_logit is not None:
        tensors["sink_logit"] = spec.sink_logit
    if spec.parameter is not None:
        tensors["bias"] = spec.parameter
    return body | {"bias": _kind(spec.bias), "sink_logit": spec.sink_logit is not None}, tensors


def _kind(bias: Bias | None) -> str | None:
    if bias is None:
        return None
    for name, kind in BIASES.items():
        # Not isinstance: a subclass may mean something else.
        if type(bias) is kind:
            return name
    raise ArgumentError(f"a bias of type {type(bias).__name__} is Python code")


def decode(body: Mapping[str, Any], tensors: Mapping[str, Tensor], sizes: Sizes) -> Spec:
    """The spec that `encode` took apart, checked as a new one is.

    Args:
        body: its dict, whose entries have the types that `encode` gives them.
        tensors: its tensors; others may be among them.
        sizes: of the call that it is for.

    Raises:
        ArgumentError: an unknown kind of bias, a tensor that is missing or one too many, a number out of range.
        MaskError, ShapeError: what was written down does not fit together, or not these sizes.
    """
    kind, sink = body["bias"], body["sink_logit"]
    has_tensor = kind is not None and kind not in WITHOUT_TENSOR
    unknown = kind is not None and kind not in BIASES
    if unknown or has_tensor != ("bias" in tensors) or sink != ("sink_logit" in tensors):
        raise ArgumentError(
            f"'bias' must be null or one of {', '.join(BIASES)}, 'sink_logit' true or false, each with its tensor, "
            f"got {kind!r:.60} and {sink}"
        )
    bias = None
    if kind is not None:
        # Its place is written down in the offset: `Spec.of` moves the bias there.
        values = [tensors["bias"]] if has_tensor else []
        bias = BIASES[kind](*values)
    mask = None
    if body["mask"] is not None:
        mask = deserialize_mask(body["mask"], tensors)
    # The offset goes in as `align`, so that the mask and the bias are checked at their place.
    return Spec.of(
        sizes, mask, bias, body["scale"], body["softcap"], tensors.get("sink_logit"), align=body["offset"]
    )
