"""A layer of attention that calls it in one of several ways, and what changed heads give, dense and in float64."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import regard as rg

HEADS, KV_HEADS, DIM, QUERIES, BATCH = 6, 3, 5, 11, 2
WAYS = ("sdpa", "attend", "flex", "softmax", "einsum", "baddbmm", "logits of a module")


class Layer(nn.Module):
    """Causal self-attention, in which the last keys of row 1 are padding."""

    def __init__(self, way: str, dtype: torch.dtype = torch.float64, seed: int = 3) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.way, self.num_heads, size = way, HEADS, HEADS * DIM
        self.q, self.o = nn.Linear(size, size, dtype=dtype), nn.Linear(size, size, dtype=dtype)
        self.k, self.v = (nn.Linear(size, KV_HEADS * DIM, dtype=dtype) for _ in range(2))
        self.soft = nn.Softmax(-1)

    def vectors(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, with one head of keys for each of the queries'."""
        q, k, v = (part(x).unflatten(-1, (-1, DIM)).transpose(1, 2) for part in (self.q, self.k, self.v))
        return 2 * q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)

    @staticmethod
    def keep(queries: int, keys: int) -> Tensor:
        """What may be attended, `(batch, 1, queries, keys)`."""
        causal = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        real = torch.ones(BATCH, keys, dtype=torch.bool)
        real[1, keys - 3 :] = False
        return causal & real[:, None, None, :]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.vectors(x)
        keep = self.keep(q.shape[2], k.shape[2])
        scores = None
        if self.way == "sdpa":
            out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        elif self.way == "attend":
            out = rg.attend(q, k, v, mask=rg.dense(keep=keep))
        elif self.way == "flex":
            out = flex_attention(
                q, k, v, score_mod=lambda s, b, h, i, j: torch.where(keep[b, 0, i, j], s, -torch.inf)
            )
        elif self.way == "einsum":
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(DIM)
            weights = scores.masked_fill(~keep, -torch.inf).softmax(-1)
            out = torch.einsum("bhqk,bhkd->bqhd", weights, v).transpose(1, 2)
        elif self.way == "baddbmm":
            flat = [part.flatten(0, 1) for part in (q, k, v)]
            blank = torch.zeros(len(flat[0]), q.shape[2], k.shape[2], dtype=q.dtype)
            scores = torch.baddbmm(blank, flat[0], flat[1].mT, alpha=1 / math.sqrt(DIM))
            scores = scores.view(BATCH, HEADS, q.shape[2], -1).masked_fill(~keep, -1e9)
            weights = torch.softmax(scores, dim=-1).flatten(0, 1)
            out = torch.bmm(weights, flat[2]).view(q.shape)
        else:
            scores = (q @ k.mT / math.sqrt(DIM)).masked_fill(~keep, -torch.inf)
            weights = scores.softmax(-1) if self.way == "softmax" else self.soft(scores)
            out = weights @ v
        return self.o(out.transpose(1, 2).flatten(2))


def dense_weights(scores: Tensor, keep: Tensor, change: dict[str, Any]) -> Tensor:
    """The weights of one head, `(batch, queries, keys)`, by the words of the manual."""
    queries, keys = scores.shape[-2:]
    if (mask := change.get("mask")) is not None:
        keep = keep & mask.dense(queries, keys)[0, 0]
    if (softcap := change.get("softcap")) is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores / change.get("temperature", 1.0)
    if change.get("uniform"):
        scores = torch.zeros_like(scores)
    powers = torch.where(keep, (scores - scores.amax(-1, keepdim=True)).exp(), 0)
    weights = powers / powers.sum(-1, keepdim=True).clamp(min=1e-300)
    if (top := change.get("top")) is not None and top < keys:
        smallest = weights.topk(top, -1).values[..., -1:]
        weights = torch.where(weights >= smallest, weights, 0)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    return weights


def dense_layer(layer: Layer, x: Tensor, changes: dict[int, dict[str, Any]]) -> tuple[Tensor, Tensor]:
    """The layer's output with its heads changed, and all weights `(batch, heads, queries, keys)`."""
    q, k, v = layer.vectors(x)
    keep = layer.keep(q.shape[2], k.shape[2])[:, 0]
    outputs, weights = [], []
    for head in range(HEADS):
        change = changes.get(head, {})
        scores = q[:, head] @ k[:, head].mT / math.sqrt(DIM)
        weights.append(dense_weights(scores, keep, change))
        outputs.append(weights[-1] @ v[:, head])
        if (output := change.get("output")) is not None:
            outputs[-1] = torch.zeros_like(outputs[-1]) if isinstance(output, str) else output
    return layer.o(torch.cat(outputs, -1)), torch.stack(weights, 1)
