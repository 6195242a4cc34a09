"""Named arrays as one block of bytes, in the safetensors format, which a browser reads in a few lines.

Knows arrays and JSON; it does not know what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import require


def pack(arrays: Mapping[str, Tensor | np.ndarray], info: Any = None) -> bytes:
    """The arrays and what JSON can hold beside them, as safetensors, little-endian.

    Args:
        arrays: name → values of any shape.
        info: becomes the entry `json` of the file's metadata; None: no entry.

    Raises:
        ValueError: NaN or infinity within `info`, which JSON has not.
        MissingPackageError: safetensors is not installed.

    Example:
        >>> import torch
        >>> unpack(pack({"weights": torch.eye(2)}, {"cell": 1}))[1]
        {'cell': 1}
    """
    metadata = None
    if info is not None:
        metadata = {"json": json.dumps(info, allow_nan=False, separators=(",", ":"))}
    # The library takes memory as it lies: rows must follow each other, as those of a slice do not.
    plain = {name: np.asarray(_plain(values), order="C") for name, values in arrays.items()}
    return require("safetensors.numpy", extra="record").save(plain, metadata=metadata)


def unpack(content: bytes) -> tuple[dict[str, np.ndarray], Any]:
    """What `pack` was given: the arrays, and the JSON value, None where there was none.

    Raises:
        MissingPackageError: safetensors is not installed.
    """
    arrays = require("safetensors.numpy", extra="record").load(content)
    # Eight bytes say how long the header is; the library reads metadata from files alone.
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    if "json" in metadata:
        return arrays, json.loads(metadata["json"])
    return arrays, None


def log_weights(weights: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Weights as they travel: natural logarithms in float16.

    Args:
        weights: of any shape.
        allowed: bool, that broadcasts to it: where the mask allows no pair there is NaN.

    Returns:
        float16 of the shape of `weights`; −inf for a weight of 0.

    Example:
        >>> import torch
        >>> log_weights(torch.tensor([1.0, 0.0, 0.5]), torch.tensor([True, True, False]))
        tensor([0., -inf, nan], dtype=torch.float16)
    """
    # Two bytes a cell: half a step of float16 is less than a color is worth.
    logs = weights.log().to(torch.float16)
    if allowed is not None:
        logs = logs.masked_fill(~allowed, torch.nan)
    return logs


def _plain(values: Tensor | np.ndarray) -> np.ndarray:
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    return values
