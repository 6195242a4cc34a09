"""What tests of mechanisms share: dense float64 truth of their weights, and a watch that changes no bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import regard as rg
from regard.nn import Features
from regard.record import Record


def implied(query: Tensor, key: Tensor, features: Features, keep: Tensor | None = None) -> Tensor:
    """The weights of linear attention, n × n, by their definition; 0 in rows that may attend nothing."""
    group = query.shape[1] // key.shape[1]
    products = features(query) @ features(key).repeat_interleave(group, 1).mT
    if keep is not None:
        products = products * keep
    return torch.nan_to_num(products / products.sum(-1, keepdim=True))


def watched(module: nn.Module, run: Callable[[], Any], **settings: Any) -> Record:
    """Run something plain and watched: the same bits."""
    want = run()
    with rg.watch(module, keep="vectors", **settings) as record:
        got = run()
    assert all(torch.equal(a, b) for a, b in zip(_tensors(want), _tensors(got), strict=True))
    return record


def _tensors(result: Any) -> list[Tensor]:
    return [part for part in (result if isinstance(result, tuple) else (result,)) if isinstance(part, Tensor)]
