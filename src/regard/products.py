"""Products of the weights with vectors, which are never stored: with one number per query, and with one per key.

Knows checked calls and engines; what the numbers mean is said by whoever asks, such as `regard.analysis.flow`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor

from regard import engines
from regard.checks.transforms import tracing, transforming
from regard.engines.choice import WAY_OUT
from regard.engines.protocol import Engine
from regard.errors import ArgumentError, EngineError, ShapeError
from regard.shapes import repeat_heads, sizes_of, statistics_dtype
from regard.spec import Spec, SpecArguments
from regard.statistics.state import State, merge, sink_state
from regard.statistics.table import Wanted


def weighted_sums(
    query: Tensor, key: Tensor, x: Tensor, *, engine: str = "auto", **spec: Unpack[SpecArguments]
) -> Tensor:
    """The products of row vectors with the weights: Σ over queries of x · weight, in O(n) memory.

        result[…, k, c] = Σ over q of x[…, q, c] · w[…, q, k]

    With x of ones it is `received`. It has no gradient, as `received` has none: the result is detached.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`.
        x: `(batch, heads, queries, vectors)`, or 1 in place of batch or heads; finite. One vector is the common case.
        engine: "auto", or the name of one, which then never falls back.
        **spec: mask, bias, scale, softcap, sink_logit, align: see `SpecArguments`.

    Returns:
        `(batch, heads, keys, vectors)`, in float64 for float64 inputs and float32 for all others; a query that may
        attend no key adds nothing.

    Raises:
        ShapeError, MaskError, ArgumentError: inputs that do not fit together, an x that is not finite.
        EngineError: the engine asked for is not there or refuses, or the call stands in a graph or a transform.

    Example:
        >>> import regard as rg
        >>> query = key = torch.zeros(1, 1, 4, 8)
        >>> x = torch.tensor([0.0, 0.0, 0.0, 4.0]).view(1, 1, 4, 1)
        >>> weighted_sums(query, key, x, mask=rg.causal()).flatten()
        tensor([1., 1., 1., 1.])
    """
    sizes = sizes_of(query, key)
    _outside_of_graphs("weighted_sums", query, key, x)
    vectors = _vectors("x", x, (sizes.batch, sizes.heads, sizes.queries), query)
    full = Spec.of(sizes, **spec).on(query.device)
    return FirstFold.of(query, key, full, engine).sums(vectors)


def weighted_means(
    query: Tensor, key: Tensor, x: Tensor, *, engine: str = "auto", **spec: Unpack[SpecArguments]
) -> Tensor:
    """The products of the weights with column vectors: Σ over keys of weight · x, in O(n) memory.

        result[…, q, c] = Σ over k of w[…, q, k] · x[…, k, c]

    It is what `attend` does with x as its value, in the precision of statistics and for any number of heads. It has no
    gradient: the result is detached.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`.
        x: `(batch, heads, keys, vectors)`, or `kv_heads` in place of heads, or 1 in place of batch or heads; finite.
        engine: "auto", or the name of one, which then never falls back.
        **spec: mask, bias, scale, softcap, sink_logit, align: see `SpecArguments`.

    Returns:
        `(batch, heads, queries, vectors)`, in float64 for float64 inputs and float32 for all others; 0 for a query that
        may attend no key.

    Raises:
        ShapeError, MaskError, ArgumentError: inputs that do not fit together, an x that is not finite.
        EngineError: the engine asked for is not there or refuses, or the call stands in a graph or a transform.

    Example:
        >>> import regard as rg
        >>> query = key = torch.zeros(1, 1, 3, 8)
        >>> weighted_means(query, key, torch.tensor([6.0, 0.0, 0.0]).view(1, 1, 3, 1), mask=rg.causal()).flatten()
        tensor([6., 3., 2.])
    """
    sizes = sizes_of(query, key)
    _outside_of_graphs("weighted_means", query, key, x)
    full = Spec.of(sizes, **spec).on(query.device)
    # Heads of the values are those of the keys.
    if x.ndim == 4 and x.shape[1] == sizes.kv_heads:
        x = repeat_heads(x, sizes.group)
    vectors = _vectors("x", x, (sizes.batch, sizes.heads, sizes.keys), query)
    means, _ = means_of(query, key, vectors, full, engine)
    return means


@dataclass(frozen=True, eq=False)
class FirstFold:
    """The first fold of a call, from which its weights can be gone through again and again.

    Attributes:
        state: m and l of the rows, a learned sink merged in.
        empty: `(batch, heads, queries)`, bool: queries that attend nothing.
    """

    query: Tensor
    key: Tensor
    spec: Spec
    engine: Engine
    state: State
    empty: Tensor

    @classmethod
    def of(cls, query: Tensor, key: Tensor, spec: Spec, engine: str = "auto") -> FirstFold:
        """That of a call whose spec has been checked."""
        query, key = query.detach(), key.detach()
        want = Wanted(output=False, weighted=True)
        with torch.no_grad():
            chosen = engines.choose(engine, query, key, None, spec, want)
            state = with_sink(chosen.rows(query, key, None, spec, want), spec)
        return cls(query, key, spec, chosen, state, state.l == 0)

    def sums(self, vectors: Tensor) -> Tensor:
        """Σ over queries of vector · weight: `(batch, heads, keys, vectors)` of `(batch, heads, queries, vectors)`."""
        state = self.state
        with torch.no_grad():
            return self.engine.weighted(self.query, self.key, self.spec, state.m, state.l, vectors)


@torch.no_grad()
def means_of(
    query: Tensor, key: Tensor, vectors: Tensor, spec: Spec, engine: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Σ over keys of weight · `vectors`, and which queries attend nothing, for a spec that has been checked.

    Args:
        vectors: `(batch, heads, keys, vectors)`; where all heads have the same numbers, an expanded tensor.
    """
    exact = statistics_dtype(query.dtype)
    sizes = sizes_of(query, key)
    # The products must be as precise as statistics, and a model may be in half precision.
    query, key, vectors = (tensor.detach().to(exact) for tensor in (query, key, vectors))
    # A value belongs to a head of keys: what differs between the heads that share one needs keys of its own.
    if vectors.stride(1) == 0:
        vectors = vectors[:, : sizes.kv_heads]
    else:
        key = repeat_heads(key, sizes.group)
    want = Wanted()
    chosen = engines.choose(engine, query, key, vectors, spec, want)
    state = with_sink(chosen.rows(query, key, vectors, spec, want), spec)
    empty = state.l == 0
    if state.o is None:
        return query.new_zeros((*empty.shape, vectors.shape[3])), empty
    means = state.o / state.filled[..., None].to(state.o.dtype)
    return means.masked_fill(empty[..., None], 0.0), empty


def with_sink(state: State, spec: Spec) -> State:
    """The state with the spec's learned sink as one more key."""
    if spec.sink_logit is None:
        return state
    # A sink is one more key, merged as a state like any other, so that engines need not count it.
    return merge(state, sink_state(state, spec.sink_logit))


def _outside_of_graphs(name: str, *tensors: Tensor) -> None:
    if tracing(*tensors) or transforming(*tensors):
        raise EngineError(
            f"{name} cannot be computed in a graph or below a transform of torch.func: {WAY_OUT}"
        )


def _vectors(name: str, x: Tensor, shape: tuple[int, int, int], query: Tensor) -> Tensor:
    """Vectors of `(batch, heads, tokens)`, in the type of statistics."""
    fits = x.ndim == 4 and x.shape[2] == shape[2]
    if not fits or x.shape[0] not in (1, shape[0]) or x.shape[1] not in (1, shape[1]):
        raise ShapeError(
            f"{name} must be (batch, heads, tokens, vectors) with batch {shape[0]} or 1, heads {shape[1]} or 1 and "
            f"{shape[2]} tokens, got {tuple(x.shape)}"
        )
    if x.device != query.device:
        raise ArgumentError(f"{name} must be where query is, on {query.device}, got {x.device}")
    vectors = x.detach().to(statistics_dtype(query.dtype))
    # 0 · NaN is NaN: a number that meets no weight would reach a sum all the same.
    if not bool(vectors.isfinite().all()):
        raise ArgumentError(f"{name} must be finite")
    return vectors.expand(*shape, -1)
