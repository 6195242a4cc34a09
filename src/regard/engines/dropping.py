"""Dropout: which weights a tile drops. Knows its place and a seed, so that every walk drops the same ones."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.masks.window import Window
from regard.statistics.table import Wanted


def dropout_factors(p: Tensor, window: Window, want: Wanted) -> Tensor:
    """Dropout's factors for one tile, the same ones whenever the tile is computed: 0 or 1/(1 − dropout)."""
    # A seed of its own for each tile: the backward pass walks them again, and must meet the same weights.
    generator = torch.Generator(p.device).manual_seed(hash((want.seed, window.q0, window.k0)) & (2**63 - 1))
    drawn = torch.empty_like(p).uniform_(generator=generator)
    return (drawn >= want.dropout).to(p.dtype) / (1 - want.dropout)
