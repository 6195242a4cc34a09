"""What a call is, in strings that can be compared: between processes, and with a folder of an earlier run."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import Tensor

from regard.errors import MaskError
from regard.masks import Mask, serialize_mask
from regard.spec.bias import Bias, Dense
from regard.spec.codec import BIASES
from regard.statistics.linear import Column

# Bytes that are hashed at once.
PIECE = 1 << 24


def digest(content: bytes) -> str:
    """A short digest of bytes."""
    return hashlib.sha256(content).hexdigest()[:12]


def described_tensor(tensor: Tensor | None) -> str | None:
    """Type, shape and SHA-256 of a tensor's numbers."""
    if tensor is None:
        return None
    shape = f"{tensor.dtype} {tuple(tensor.shape)}"
    # Of an axis that repeats one number, once.
    for axis, step in enumerate(tensor.stride()):
        if step == 0:
            tensor = tensor.narrow(axis, 0, min(1, tensor.shape[axis]))
    hashed = hashlib.sha256(shape.encode())
    content = tensor.detach().reshape(-1)
    rows = max(1, PIECE // content.element_size())
    for start in range(0, content.shape[0], rows):
        piece = content[start : start + rows].cpu().contiguous().view(torch.uint8)
        hashed.update(piece.numpy().tobytes())
    return f"{shape} {hashed.hexdigest()[:32]}"


def described_mask(mask: Mask | None) -> str | None:
    """A mask's name and a digest of what it holds; of Python code only the name."""
    if mask is None:
        return None
    try:
        body, tensors = serialize_mask(mask)
    except MaskError:
        return mask.name[:80]
    content = json.dumps([body, {name: described_tensor(part) for name, part in tensors.items()}])
    return f"{mask.name[:80]} ({digest(content.encode())})"


def described_bias(bias: Bias | None) -> str | None:
    """The kind of a bias and a digest of its tensor; of Python code and of a dense bias only the kind.

    A dense bias has other rows on every process.
    """
    if bias is None:
        return None
    name = type(bias).__name__
    if isinstance(bias, Dense) or bias.parameter is None:
        return name
    return f"{name} ({digest(str(described_tensor(bias.parameter)).encode())})"


def described_column(column: Column) -> str:
    """The name of a linear statistic and a digest of the numbers and tensors that it is bound to."""
    bound = [column.count, column.low, column.high, *map(described_tensor, column.tensors)]
    return f"{column.name} ({digest(json.dumps(bound).encode())})"


def is_code(mask: Mask | None, bias: Bias | None) -> bool:
    """Whether a mask or a bias is Python code, which cannot be compared."""
    if bias is not None and type(bias) not in BIASES.values():
        return True
    try:
        if mask is not None:
            serialize_mask(mask)
    except MaskError:
        return True
    return False
