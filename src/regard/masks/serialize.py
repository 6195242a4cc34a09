"""A mask as JSON and tensors, and back. Knows the fields of the masks, nothing of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from regard.errors import MaskError
from regard.masks.algebra import And, Mask, Not, Or
from regard.masks.bits import Dense
from regard.masks.block_sparse import BlockSparse
from regard.masks.content import Documents, Padding, Prefix
from regard.masks.positions import Causal, GlobalTokens, Near, Strided
from regard.masks.random_blocks import RandomBlocks

KINDS: dict[str, type[Mask]] = {
    kind.__name__.lower(): kind
    for kind in (
        And,
        Or,
        Not,
        Causal,
        Near,
        Strided,
        GlobalTokens,
        RandomBlocks,
        Prefix,
        Padding,
        Documents,
        Dense,
        BlockSparse,
    )
}
# Operators inside operators.
DEEPEST = 64


def serialize_mask(mask: Mask) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The mask as a JSON-able dict and the tensors it names.

    Raises:
        MaskError: a mask that is a Python function, or one of a class that is not Regard's.
    """
    tensors: dict[str, Tensor] = {}

    def serialized(value: Any) -> Any:
        if isinstance(value, Mask):
            if type(value) not in KINDS.values():
                raise MaskError(f"{value.name} is Python code, which cannot be serialized")
            parts = {name: serialized(part) for name, part in value._content().items()}
            return {"kind": type(value).__name__.lower(), **parts}
        if isinstance(value, tuple):
            return [serialized(part) for part in value]
        if isinstance(value, Tensor):
            name = f"mask.{len(tensors)}"
            tensors[name] = value
            return {"tensor": name}
        return value

    return serialized(mask), tensors


def deserialize_mask(serialized: Any, tensors: Mapping[str, Tensor]) -> Mask:
    """The mask that `serialize_mask` took apart.

    Raises:
        MaskError: what was serialized is damaged, or not a mask.
        ArgumentError: a field holds a number outside its range.
    """
    mask = _restored(serialized, tensors, DEEPEST)
    if not isinstance(mask, Mask):
        raise MaskError(f"a serialized mask must be a dict with the entry 'kind', got {serialized!r}")
    return mask


def _restored(value: Any, tensors: Mapping[str, Tensor], depth: int) -> Any:
    if depth == 0:
        raise MaskError(f"a serialized mask must nest at most {DEEPEST} deep")
    if isinstance(value, list):
        return tuple(_restored(part, tensors, depth - 1) for part in value)
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        name = str(value["tensor"])
        if name not in tensors:
            raise MaskError(f"a serialized mask names the tensor {name!r}, which is missing")
        return tensors[name]
    kind = KINDS.get(str(value.get("kind")))
    if kind is None:
        raise MaskError(f"a serialized mask must be one of {', '.join(KINDS)}, got {value.get('kind')!r}")
    parts = {name: _restored(part, tensors, depth - 1) for name, part in value.items() if name != "kind"}
    if {field.name for field in fields(kind) if field.init} != parts.keys():
        raise MaskError(
            f"a serialized {value['kind']} mask has the wrong fields: {', '.join(parts) or 'none'}"
        )
    return kind(**parts)
