"""One layer's step of a flow: a vector times the mean of the heads' weights, on either side, tile by tile.

With norms, a query takes from a key Σ over heads of w · ‖f(v)‖, as a share of what it takes from all keys. A query that
attends nothing, or that is padding, keeps what it has: its row is that of the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

# Pairs of all heads between two looks at whether somebody still waits: a second or two.
STRETCH = 1 << 29


def _nothing() -> None:
    """Nobody looks."""


def back(
    call: Call, x: Tensor, norms: Tensor | None = None, look: Callable[[], object] = _nothing
) -> tuple[Tensor, Tensor]:
    """x times what each query takes from each key: the mean over heads of the weights, or their shares by norm.

    Args:
        x: `(batch, queries)`.
        norms: `(batch, heads, keys)`, how long what a key gives is; None: weights alone.
        look: is called between stretches of queries; what it raises ends the work.

    Returns:
        What the keys get, `(batch, keys)`, and what stays with queries that attend nothing, `(batch, queries)`.
    """
    assert call.query is not None and call.key is not None
    first = 0
    got, stays = x.new_zeros(len(x), call.sizes.keys), torch.zeros_like(x)
    # The share of padding stays where it is: the model may give such rows weights that mean nothing.
    real = _without_padded(call, x)
    for part in call.spec_parts:
        # Queries that nothing comes from are left out: from one token back, most of the last layer's.
        reach = _reach(real[:, first : first + part.queries])
        for begin, end in _stretches(call, part, *reach):
            look()
            rows = slice(first + begin, first + end)
            moved, stay = _moved(call, rows, rows_of(part.spec, begin, end, part.keys), part.keys, norms)(
                real[:, rows]
            )
            got[:, : part.keys] += moved
            stays[:, rows] += stay
        first += part.queries
    return got, stays + (x - real)


def _moved(
    call: Call, rows: slice, spec: Spec, keys: int, norms: Tensor | None
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """What some queries hand to the keys, and what stays with them, as a function of what they have."""
    assert call.query is not None and call.key is not None
    query, key = call.query[:, :, rows], call.key[:, :, :keys]
    heads, exact = query.shape[1], statistics_dtype(query.dtype)
    fold = FirstFold.of(query, key, spec)

    def by_weight(x: Tensor) -> tuple[Tensor, Tensor]:
        # An empty query adds nothing to any key; what it has stays with it, so that no mass is lost.
        vectors = x[:, None].expand(-1, heads, -1).masked_fill(fold.empty, 0.0)
        sums = fold.sums(vectors[..., None].to(exact))[..., 0]
        # Heads are added in float64, the type of x, even where the sums of an engine are float32.
        return sums.sum(1, dtype=x.dtype) / heads, x * fold.empty.sum(1) / heads

    def by_norm(x: Tensor) -> tuple[Tensor, Tensor]:
        assert norms is not None
        # What a query takes in all is known before it is shared out: a fold on each side.
        lengths = norms_of_heads(norms[:, :, :keys], heads)
        total = _received(query, key, lengths, spec)
        vectors = torch.where(total > 0, x / torch.where(total > 0, total, 1.0), 0.0)
        sums = fold.sums(vectors[:, None, :, None].to(exact).expand(-1, heads, -1, -1))[..., 0]
        return (sums.to(x.dtype) * lengths).sum(1), torch.where(total > 0, 0.0, x)

    if norms is None:
        return by_weight
    return by_norm


def forward(
    call: Call,
    x: Tensor,
    lost: Tensor,
    norms: Tensor | None = None,
    look: Callable[[], object] = _nothing,
) -> Tensor:
    """What each query takes from each key times x: the other side of `back`.

    Args:
        x: `(batch, keys)`.
        lost: `(batch, queries)`, what a query that attends nothing keeps.
        norms, look: see `back`.

    Returns:
        `(batch, queries)`.
    """
    assert call.query is not None and call.key is not None
    heads, exact, first, results = call.query.shape[1], statistics_dtype(call.query.dtype), 0, []
    for part in call.spec_parts:
        for begin, end in _stretches(call, part, 0, part.queries):
            look()
            rows, spec = slice(first + begin, first + end), rows_of(part.spec, begin, end, part.keys)
            query, key, amounts = call.query[:, :, rows], call.key[:, :, : part.keys], x[:, None, : part.keys]
            if norms is None:
                vectors = amounts[..., None].to(exact).expand(-1, heads, -1, -1)
                means, empty = means_of(query, key, vectors, spec)
                total = means[..., 0].sum(1, dtype=x.dtype) + lost[:, rows] * empty.sum(1)
                results.append(total / heads)
            else:
                lengths = norms_of_heads(norms[:, :, : part.keys], heads)
                total, taken = (_received(query, key, one, spec) for one in (lengths, lengths * amounts))
                results.append(
                    torch.where(total > 0, taken / torch.where(total > 0, total, 1.0), lost[:, rows])
                )
        first += part.queries
    result = torch.cat(results, 1)
    if call.padded is None:
        return result
    return torch.where(call.padded, lost, result)


def norms_of_heads(norms: Tensor, heads: int) -> Tensor:
    """The norms for a call whose heads are one, as where all have equal weights: their sums."""
    if heads == 1:
        return norms.sum(1, keepdim=True)
    return norms


def _received(query: Tensor, key: Tensor, amounts: Tensor, spec: Spec) -> Tensor:
    """Σ over heads and keys of weight · amount, `(batch, queries)`, in the type of `amounts`."""
    vectors = amounts[..., None].to(statistics_dtype(query.dtype))
    return means_of(query, key, vectors, spec)[0][..., 0].sum(1, dtype=amounts.dtype)


def _stretches(call: Call, part: Part, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Neighboring queries of a part, so many at a time that the work can be given up soon."""
    step = max(1, STRETCH // max(1, call.sizes.batch * call.sizes.heads * part.keys))
    for start in range(begin, end, step):
        yield start, min(end, start + step)


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
