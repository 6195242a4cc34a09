"""The masks under which the native engine's tests fold 151 keys. Knows no engine."""

import torch

import regard as rg
from regard.masks import Mask

KEYS = 151


def masks(queries: int) -> dict[str, Mask | None]:
    """Masks by name for so many queries at the end of the keys, in two rows of a batch and six heads."""
    kept = torch.rand(2, 6, queries, KEYS, generator=torch.Generator().manual_seed(1)) < 0.4
    return {
        "none": None,
        "causal": rg.causal(),
        "near": rg.near(30, 2),
        "strided": rg.strided(5) & rg.causal(),
        "parts": (rg.strided(5) & rg.causal()) | rg.near(9) | rg.global_tokens([0, 1]),
        "ragged": rg.padding([KEYS, 101]) & ~rg.prefix(70),
        "empty": rg.prefix([0, 13]),
        "dense": rg.dense(keep=kept, offset=KEYS - queries),
    }
