"""What do all row statistics cost? `observe` against plain SDPA, and against stored weights with the same ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regard as rg
from benchmarks import common

HEADS, LENGTH, DIM = 8, 4096, 64


def stored(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> dict[str, Tensor]:
    """Softmax with stored weights, then the same output and statistics, as one would write it in torch."""
    n = query.shape[2]
    scores = query @ key.transpose(-1, -2) * query.shape[3] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    w = torch.softmax(scores, -1)
    position = torch.arange(n, dtype=w.dtype)
    step = position[None, :] - position[:, None]
    entropy = torch.special.entr(w).sum(-1)
    mean = w @ position
    return {
        "output": w @ value,
        "lse": torch.logsumexp(scores, -1),
        "entropy": entropy,
        "effective_keys": entropy.exp(),
        "max_weight": w.amax(-1),
        "argmax": w.argmax(-1),
        "sum_squares": w.square().sum(-1),
        "distance": (w * step.abs()).sum(-1),
        "position": mean,
        "spread": (w @ position.square() - mean.square()).clamp(min=0).sqrt(),
        "first": w[..., 0],
        "self_mass": w.diagonal(dim1=-2, dim2=-1),
        "previous": w.diagonal(-1, dim1=-2, dim2=-1),
        "local": (w * (step.abs() <= 8)).sum(-1),
    }


def candidates(causal: bool) -> dict[str, Callable[[], object]]:
    """The three ways, on one set of inputs."""
    query, key, value = (torch.randn(1, HEADS, LENGTH, DIM) for _ in range(3))
    mask = rg.causal() if causal else None
    return {
        "sdpa": lambda: scaled_dot_product_attention(query, key, value, is_causal=causal),
        "observe": lambda: rg.observe(query, key, value, mask=mask, statistics="rows"),
        "stored": lambda: stored(query, key, value, causal),
    }


def main() -> None:
    """Measure both kinds and write the result."""
    common.prepare()
    figures = {}
    for causal in (False, True):
        times = common.interleaved(candidates(causal))
        observed = times["observe"]["median_s"]
        figures["causal" if causal else "full"] = times | {
            "observe_over_sdpa": observed / times["sdpa"]["median_s"],
            "stored_over_observe": times["stored"]["median_s"] / observed,
        }
    common.write(
        "rows", "python -m benchmarks.rows",
        "observe ≤ 2.6 × SDPA; stored weights ≥ 4 × slower than observe (full), ≥ 7 × (causal)", figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
