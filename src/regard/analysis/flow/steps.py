"""One layer's step of a flow: a vector times the mean of the heads' weights, on either side, tile by tile.

A query that attends nothing, or that is padding, keeps what it has: its row is that of the identity.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.masks.window import Window
from regard.products import FirstFold, means_of
from regard.record.call import Call
from regard.record.segments import Part
from regard.shapes import statistics_dtype
from regard.spec import Spec
from regard.spec.bias import Bias, ScoreMod


def back(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    """x times the mean over heads of the weights.

    Args:
        x: `(batch, queries)`.

    Returns:
        What the keys get, `(batch, keys)`, and what stays with queries that attend nothing, `(batch, queries)`.
    """
    assert call.query is not None and call.key is not None
    heads, first = call.query.shape[1], 0
    got, stays = x.new_zeros(len(x), call.sizes.keys), torch.zeros_like(x)
    # The share of padding stays where it is: the model may give such rows weights that mean nothing.
    real = _without_padded(call, x)
    for part in call.spec_parts:
        begin, end = _reach(real[:, first : first + part.queries])
        rows = slice(first + begin, first + end)
        if begin < end:
            # Queries that nothing comes from are left out: from one token back, most of the last layer's.
            spec = rows_of(part.spec, begin, end, part.keys)
            fold = FirstFold.of(call.query[:, :, rows], call.key[:, :, : part.keys], spec)
            # An empty query adds nothing to any key; what it has goes to `stays`, so that no mass is lost.
            vectors = real[:, None, rows].expand(-1, heads, -1).masked_fill(fold.empty, 0.0)
            sums = fold.sums(vectors[..., None].to(statistics_dtype(call.query.dtype)))
            # Heads are added in float64, the type of x, even where the sums of an engine are float32.
            got[:, : part.keys] += sums[..., 0].sum(1, dtype=x.dtype)
            stays[:, rows] += real[:, rows] * fold.empty.sum(1)
        first += part.queries
    return got / heads, stays / heads + (x - real)


def forward(call: Call, x: Tensor, lost: Tensor) -> Tensor:
    """The mean over heads of the weights times x.

    Args:
        x: `(batch, keys)`.
        lost: `(batch, queries)`, what a query that attends nothing keeps.

    Returns:
        `(batch, queries)`.
    """
    assert call.query is not None and call.key is not None
    heads, exact, first, results = call.query.shape[1], statistics_dtype(call.query.dtype), 0, []
    for part in call.spec_parts:
        rows = slice(first, first + part.queries)
        vectors = x[:, None, : part.keys, None].to(exact).expand(-1, heads, -1, -1)
        means, empty = means_of(call.query[:, :, rows], call.key[:, :, : part.keys], vectors, part.spec)
        total = means[..., 0].sum(1, dtype=x.dtype) + lost[:, rows] * empty.sum(1)
        results.append(total / heads)
        first += part.queries
    result = torch.cat(results, 1)
    if call.padded is None:
        return result
    return torch.where(call.padded, lost, result)


def uniform(call: Call) -> Call:
    """The call with every score 0 where a key may be attended: what its masks alone would give."""
    assert call.query is not None and call.key is not None and call.spec is not None
    parts = tuple(replace(part, spec=_uniform(part.spec)) for part in call.spec_parts)
    spec = parts[0].spec
    # Where all heads have one mask, one stands for all.
    heads = 1
    if any(_by_head(part) for part in parts):
        heads = call.query.shape[1]
    # A single dimension is enough for scores that are all 0, and costs least.
    query = torch.zeros_like(call.query[:, :heads, :, :1])
    key = torch.zeros_like(call.key[:, :1, :, :1])
    return replace(call, query=query, key=key, spec=spec, parts=parts)


def rows_of(spec: Spec, begin: int, end: int, keys: int) -> Spec:
    """The spec of some neighboring queries of a call."""
    bias = spec.bias
    if bias is not None:
        window = Window(spec.offset + begin, spec.offset + end, 0, keys, spec.offset)
        # A bias may be stored by query and is cut; a mask goes by positions, for which the offset is enough.
        bias = bias.part(window)[0]
    return replace(spec, offset=spec.offset + begin, bias=bias)


def _uniform(spec: Spec) -> Spec:
    bias = spec.bias
    if bias is not None:
        bias = _blocking(bias)
    # Without the learned sink, which would take a part of the equal weights that is not due to the mask.
    return replace(spec, bias=bias, softcap=None, sink_logit=None)


def _blocking(bias: Bias) -> Bias | None:
    """What a bias blocks, and nothing else of it."""
    if not bias.may_block:
        return None
    if isinstance(bias, ScoreMod):
        function = bias.function
        return replace(bias, function=lambda score, *where: _blocked(function(score, *where)))
    # Features of which a logarithm is taken block nothing that a mask would.
    if bias.parameter is None:
        return None
    return bias.with_values(_blocked(bias.parameter))


def _blocked(scores: Tensor) -> Tensor:
    return torch.zeros_like(scores).masked_fill(scores == -torch.inf, -torch.inf)


def _by_head(part: Part) -> bool:
    mask, bias = part.spec.mask, part.spec.bias
    return bias is not None or (mask is not None and mask.shape[1] != 1)


def _without_padded(call: Call, x: Tensor) -> Tensor:
    if call.padded is None:
        return x
    return x.masked_fill(call.padded, 0.0)


def _reach(x: Tensor) -> tuple[int, int]:
    """The first and past the last column that holds anything."""
    # Over all rows of the batch, as one fold takes the same range of queries for all of them.
    places = x.any(0).nonzero()
    if not len(places):
        return 0, 0
    return int(places[0]), int(places[-1]) + 1
