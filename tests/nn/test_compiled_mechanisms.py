"""Mechanisms inside `torch.compile` compute what they compute outside of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.nn import LandmarkAttention, LinearAttention, PositiveRandom, ProjectedAttention

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: LinearAttention(12, 3, causal=True),
    "random": lambda: LinearAttention(12, 3, features=PositiveRandom(4, 11)),
    "slots": lambda: ProjectedAttention(12, 3, max_keys=17, rank=5),
    "landmarks": lambda: LandmarkAttention(12, 3, 5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_layers_compute_the_same(name: str) -> None:
    layer, x = LAYERS[name](), torch.randn(2, 13, 12)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))
