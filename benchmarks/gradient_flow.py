"""How far do gradients reach? Exact ‖∂z_i/∂x_j‖ for every pair, through attention and through a GRU as wide."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import regard as rg
from benchmarks import common
from regard import draw
from regard.analysis import by_distance, jacobian_norms

TOKENS, WIDTH, HEADS, SEEDS = 128, 64, 4, 3
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 96)
ATTENTION, RECURRENT = "causal attention", "GRU"


def tables(seed: int) -> dict[str, Tensor]:
    """Both layers as they are made, given the same text of standard normal tokens."""
    torch.manual_seed(seed)
    layers: dict[str, nn.Module] = {
        ATTENTION: rg.nn.MultiHeadAttention(WIDTH, HEADS, mask=rg.causal()),
        RECURRENT: nn.GRU(WIDTH, WIDTH, batch_first=True),
    }
    x = torch.randn(TOKENS, WIDTH)
    return {name: jacobian_norms(layer, x) for name, layer in layers.items()}


def told(means: Tensor) -> dict[str, Any]:
    """Norms at some distances, and the factor that each further token leaves between distances 1 and 64.

    `means`: `(tokens,)`, of all seeds.
    """
    return {
        "norm_at_distance": {str(distance): float(means[distance]) for distance in DISTANCES},
        "share_left_at_64_of_1": float(means[64] / means[1]),
        "factor_per_token": math.exp(float((means[64] / means[1]).log()) / 63),
    }


def main() -> None:
    """Compute, draw, and write the result."""
    common.prepare()
    found = [tables(seed) for seed in range(SEEDS)]
    means = {name: torch.stack([each[name] for each in found]).mean(0) for name in found[0]}
    note = (
        f"Width {WIDTH}, {HEADS} heads, {TOKENS} standard normal tokens, weights as the layers are made, means over "
        f"{SEEDS} seeds; exact, float64. Norms below a millionth of the largest share the lightest color; exact zeros "
        "are gray."
    )
    common.picture(
        "gradient_flow", draw.flow(means, title="How much an output depends on an input", note=note)
    )
    common.write(
        "gradient_flow", "python -m benchmarks.gradient_flow",
        "share_left_at_64_of_1: attention ≥ 0.1, GRU ≤ 1e-6",
        {"tokens": TOKENS, "width": WIDTH, "seeds": SEEDS}
        | {name: told(by_distance(table)) for name, table in means.items()},
    )  # fmt: skip


if __name__ == "__main__":
    main()
