"""Are the layers as fast as torch's? Attention against `nn.MultiheadAttention`, decoding with a cache, sparse masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import regard as rg
from benchmarks import common
from regard.masks import Mask

WIDTH, HEADS = 768, 12  # of GPT-2 small
LENGTHS = (512, 2048)
DECODED, DECODER = 512, {"num_layers": 2, "embed_dim": 512, "num_heads": 8}
LONG, LONG_WIDTH, LONG_HEADS = 16384, 512, 8
# What each mask keeps: its own share of the pairs is measured, not assumed.
SPARSE: dict[str, Mask] = {
    "local": rg.near(255),
    "strided": rg.causal() & rg.strided(64),
    "random": rg.random_blocks(4, 64),
    "global": rg.global_tokens(range(64)),
    "union": rg.near(63) | rg.random_blocks(2, 64) | rg.global_tokens(range(16)),
}


def attention(length: int, *, trains: bool) -> dict[str, Any]:
    """The layer with torch's weights: forward as in inference, or forward and backward."""
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).train(trains)
    ours = rg.nn.from_torch(theirs)
    x, pull = torch.randn(1, length, WIDTH), torch.randn(1, length, WIDTH)
    x.requires_grad_(trains)
    runs = {
        "regard": lambda: ours(x),
        "torch": lambda: theirs(x, x, x, need_weights=False)[0],
        "torch, which averages its weights": lambda: theirs(x, x, x)[0],
    }

    def trained(run: Any) -> None:
        run().backward(pull)

    def inferred(run: Any) -> None:
        with torch.no_grad():
            run()

    once = trained if trains else inferred
    times = common.interleaved({name: lambda run=run: once(run) for name, run in runs.items()}, 25)
    others = [name for name in runs if name != "regard"]
    return {f"regard_over_{name}": common.over(times, "regard", name) for name in others} | {"times": times}


@torch.inference_mode()
def decoding() -> dict[str, Any]:
    """As many steps as tokens, with a cache and reading everything again at each step."""
    model = rg.nn.Decoder(**DECODER, cross_attention=False, attention={"positions": rg.nn.Rotary(64)}).eval()
    x = torch.randn(1, DECODED, DECODER["embed_dim"])

    def cached() -> None:
        cache = rg.nn.Cache(model)
        for token in x.split(1, 1):
            model(token, cache=cache)

    def again() -> None:
        for end in range(1, DECODED + 1):
            model(x[:, :end])

    times = common.interleaved({"with cache": cached, "without": again}, 3)
    return {"times_faster": common.over(times, "without", "with cache"), "times": times}


@torch.inference_mode()
def window() -> dict[str, Any]:
    """A window of 256 tokens: attention alone and the whole layer, beside SDPA over all pairs and a layer on it."""
    mask = rg.near(255) & rg.causal()
    shape = (1, LONG_HEADS, LONG, LONG_WIDTH // LONG_HEADS)
    query, key, value = (torch.randn(shape) for _ in range(3))
    full = nn.MultiheadAttention(LONG_WIDTH, LONG_HEADS, batch_first=True).eval()
    local = rg.nn.MultiHeadAttention(LONG_WIDTH, LONG_HEADS, mask=mask).eval()
    x = torch.randn(1, LONG, LONG_WIDTH)
    times = common.interleaved(
        {
            "window": lambda: rg.attend(query, key, value, mask=mask),
            "sdpa": lambda: scaled_dot_product_attention(query, key, value),
            "sdpa, causal": lambda: scaled_dot_product_attention(query, key, value, is_causal=True),
            "layer with window": lambda: local(x),
            "torch's layer": lambda: full(x, x, x, need_weights=False),
        },
        3,
    )
    pairs = {name: common.over(times, name, "window") for name in ("sdpa", "sdpa, causal")}
    layers = common.over(times, "torch's layer", "layer with window")
    return {
        "times_faster_than_sdpa": pairs["sdpa"],
        "times_faster_than_causal_sdpa": pairs["sdpa, causal"],
        "layer_times_faster": layers,
        "times": times,
    }


@torch.inference_mode()
def sparse(length: int = 8192, heads: int = 2) -> dict[str, Any]:
    """Time of each mask over the time of all pairs, beside its share of the pairs."""
    query, key, value = (torch.randn(1, heads, length, 64) for _ in range(3))
    masks = {"all": None, **SPARSE}
    times = common.interleaved(
        {name: lambda mask=mask: rg.attend(query, key, value, mask=mask) for name, mask in masks.items()}, 5
    )
    figures: dict[str, Any] = {"times": times}
    for name, mask in SPARSE.items():
        allowed = rg.observe(query, key, mask=mask, statistics=("allowed",)).allowed
        assert allowed is not None
        share = int(allowed.sum()) / (heads * length**2)
        figures[name] = {"pairs_share": share, "time_share": common.over(times, name, "all")}
    return figures


def main() -> None:
    """Measure all four and write the result."""
    common.prepare()
    figures: dict[str, Any] = {}
    for length in LENGTHS:
        figures[f"forward, {length} tokens"] = attention(length, trains=False)
        figures[f"forward and backward, {length} tokens"] = attention(length, trains=True)
    figures["decoding"] = decoding()
    figures["window of 256"] = window()
    figures["sparse masks"] = sparse()
    common.write(
        "layers", "python -m benchmarks.layers",
        "≤ 1.0 × nn.MultiheadAttention (regard_over_torch); cache ≥ 8 ×, window ≥ 15 × faster (times_faster…)", figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
