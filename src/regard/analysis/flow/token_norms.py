"""What one token gets from each key, by norm: the largest of each head, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from regard.analysis.flow.chain import chain_of
from regard.analysis.flow.value_norms import value_norms_of
from regard.checks.arguments import checked, whole
from regard.errors import RecordError
from regard.record.record import Record
from regard.record.segments import window
from regard.record.table import frame

if TYPE_CHECKING:
    from pandas import DataFrame


@checked
def token_norms(
    record: Record,
    token: int,
    model: nn.Module | None = None,
    *,
    text: str = "target",
    batch: int = 0,
    top: int = 8,
) -> DataFrame:
    """The keys that give one token most in each head, by ‖w · f(v)‖: see `norms`.

    From one token back, layer by layer: those of the text that it is of, cross-attention among them.

    Args:
        record: of one pass, made by `watch(model, keep="vectors")`.
        token: which token of the text; negative counts from the end.
        model: the model that was watched, for its output projections; None: the values' own norms.
        text: "target", the text itself, or "source", the text that its cross-attention looks at.
        batch: which row of the batch.
        top: how many keys of each head, at most.

    Returns:
        A row per key: `layer`, `kind`, `head`, `projected`, `rank` (from 0), `key`, `weight`, `value_norm`, `norm`
        (their product) and `share`, of the sum of the norms of all keys; largest norm first, those of norm 0 left out.

    Raises:
        RecordError: no calls, no vectors or values, layers that do not follow each other on the same tokens.
        ArgumentError: there is no such token, text or row; the model is not the one that was watched.
        MissingPackageError: pandas is not installed.

    Example:
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> with rg.watch(layer, keep="vectors") as record:
        ...     _ = layer(torch.randn(1, 7, 16))
        >>> rg.analysis.flow.token_norms(record, -1, layer, top=3)["rank"].tolist()
        [0, 1, 2, 0, 1, 2]
    """
    chain = chain_of(record)
    token = chain.token(token, text)
    batch = whole("batch", batch, 0, chain.batch - 1)
    calls = chain.target
    if text == "source":
        calls = chain.source
    if not calls:
        raise RecordError("the record has no layers of the text that its cross-attention looks at")
    parts = []
    for call, values in zip(calls, value_norms_of(calls, model), strict=True):
        assert call.query is not None and call.key is not None
        # One row of the weights: all of them are never made.
        here = slice(token, token + 1)
        weights = window(call.query, call.key, call.spec_parts, here, slice(None))[batch, :, 0].double()
        if call.padded is not None and bool(call.padded[batch, token]):
            weights = torch.zeros_like(weights)
        value_norms = values.attended(_row(weights, values.norms, batch))[batch]
        norms = weights * value_norms
        most, keys = norms.topk(min(whole("top", top, 1), norms.shape[-1]), -1)
        # A norm of 0 names no key.
        head, rank = (most > 0).nonzero(as_tuple=True)
        key = keys[head, rank]
        count = len(head)
        parts.append(
            {
                "layer": np.full(count, call.layer, object),
                "kind": np.full(count, call.kind, object),
                "head": head.numpy(),
                "projected": np.full(count, values.projected),
                "rank": rank.numpy(),
                "key": key.numpy(),
                "weight": weights[head, key].numpy(),
                "value_norm": value_norms[head, key].numpy(),
                "norm": most[head, rank].numpy(),
                "share": (most[head, rank] / norms.sum(-1)[head]).numpy(),
            }
        )
    return frame(parts, parts[0])


def _row(weights: torch.Tensor, norms: torch.Tensor, batch: int) -> torch.Tensor:
    """Which keys this row of the batch attends to, in the shape of the norms of all rows."""
    some = torch.zeros_like(norms, dtype=torch.bool)
    some[batch] = weights > 0
    return some
