"""The weights of a few rows of a call, by the textbook's formula: what a captured call is compared with the model by.

Knows scores and softmax, of some rows times all keys; it does not know what they are compared with. It takes none of
the engines' folds, so it tells as well where one of those is wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.walk import LOG2E, finished
from regard.masks.window import Window
from regard.shapes import statistics_dtype
from regard.spec import Spec


def sampled_weights(query: Tensor, key: Tensor, spec: Spec, step: int) -> Tensor:
    """The weights of every `step`-th query, a learned sink's share aside.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`.
        spec: of the call, with its mask where the tensors are.

    Returns:
        `(batch, heads, sampled queries, keys)` in the type of statistics; 0 in a row that may attend nothing.
    """
    exact = statistics_dtype(query.dtype)
    window = Window(spec.offset, spec.offset + query.shape[2], 0, key.shape[2], spec.offset, step=step)
    tile, _ = finished(_products(query[:, :, ::step].to(exact), key.to(exact), spec), spec, window)
    about = tile.detach().amax(-1, keepdim=True)
    if spec.sink_logit is not None:
        sink = spec.sink_logit.to(exact).view(1, -1, 1, 1)
        about = torch.maximum(about, sink)
    about = about.masked_fill(about == -torch.inf, 0.0)
    # torch.exp takes seventy times as long where a result is denormal.
    parts = (tile - about).mul_(LOG2E).exp2_()
    total = parts.sum(-1, keepdim=True)
    if spec.sink_logit is not None:
        total = total + (sink - about).exp() * (total > 0)
    return parts / total.masked_fill(total == 0, 1.0)


def _products(query: Tensor, key: Tensor, spec: Spec) -> Tensor:
    """The scores of some queries and all keys before bias and mask: scale · q·k, and softcap.

    Not those of the engines' tiles, which copy the keys so that every fold of a call finds the same bits: here keys are
    read once, where they lie, and a fault there is not repeated here.

    Args:
        query: `(batch, heads, rows, dim)`.
        key: `(batch, kv_heads, keys, dim)`.

    Returns:
        `(batch, heads, rows, keys)`.
    """
    batch, heads, rows, dim = query.shape
    lanes = batch * key.shape[1]
    folded = query.reshape(lanes, heads // key.shape[1] * rows, dim)
    product = torch.bmm(folded, key.reshape(lanes, key.shape[2], dim).mT).mul_(spec.scale)
    tile = product.view(batch, heads, rows, key.shape[2])
    if spec.softcap is None:
        return tile
    return spec.softcap * torch.tanh(tile / spec.softcap)


def weighted(weights: Tensor, value: Tensor) -> Tensor:
    """The sum of the values under some rows of weights: `(batch, heads, rows, value_dim)`.

    Args:
        weights: `(batch, heads, rows, keys)`.
        value: `(batch, kv_heads, keys, value_dim)`, where `kv_heads` divides `heads`.
    """
    batch, heads, rows, keys = weights.shape
    lanes = batch * value.shape[1]
    folded = weights.reshape(lanes, heads // value.shape[1] * rows, keys)
    product = torch.bmm(folded, value.to(weights.dtype).reshape(lanes, keys, value.shape[3]))
    return product.view(batch, heads, rows, value.shape[3])
