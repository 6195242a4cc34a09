"""The engine for CUDA: the two folds and the gradient as Triton kernels, float32 sums in O(n) memory.

Importing it imports nothing of Triton. It also runs in Triton's interpreter (TRITON_INTERPRET=1), for tests.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.differentiable import differentiable
from regard.engines.protocol import two_folds
from regard.engines.triton.columns import columns, weighted
from regard.engines.triton.gradient import vjp
from regard.engines.triton.launch import installed, interpreted
from regard.engines.triton.rows import fold
from regard.engines.triton.tile_shapes import MOST_TOP, MOST_WIDTH
from regard.shapes import value_dim_of
from regard.spec import Spec
from regard.spec.bias import Alibi, Dense, Relative
from regard.statistics.table import Wanted

name = "triton"
rows = differentiable(fold, vjp)
look = two_folds

__all__ = ["columns", "look", "name", "vjp", "refuses", "rows", "weighted"]

TYPES = (torch.float32, torch.bfloat16, torch.float16)
# One bit each of a key's word.
GROUPS = 32


def refuses(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> str | None:
    """Why this engine will not take a case, in words for its user; None where it takes it."""
    if not installed():
        return 'Triton is not installed: pip install "regard[cuda]"'
    if query.device.type != "cuda" and not interpreted():
        return f"the tensors must be on a CUDA device, got {query.device}"
    if query.dtype not in TYPES:
        return f"it computes in float32, bfloat16 and float16, got {query.dtype}"
    width = max(query.shape[3], value_dim_of(value))
    if width > MOST_WIDTH:
        return f"dim and value_dim must be at most {MOST_WIDTH}, got {width}"
    if want.dropout:
        return "it has no dropout"
    if spec.bias is not None and not isinstance(spec.bias, Dense | Alibi | Relative):
        return f"it cannot evaluate a bias of type {type(spec.bias).__name__}"
    learned = spec.parameter
    if learned is not None and learned.requires_grad and torch.is_grad_enabled():
        return "it has no gradient of a bias"
    if want.top > MOST_TOP:
        return f"top must be at most {MOST_TOP}, got {want.top}"
    unknown = [column.name for column in want.columns if not column.kind]
    if unknown:
        return f"it cannot evaluate the column {unknown[0]!r}"
    if sum(column.kind == "group" for column in want.columns) > GROUPS:
        return f"at most {GROUPS} groups of keys at once"
    return None
