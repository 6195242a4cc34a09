"""The three verbs: `attend` computes attention, `observe` also says what it did, `weights` shows a window of it.

Knows how to check a call, pick a road and read the result; the folds are the engines'.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from regard import roads
from regard.axes import Sizes, sizes_of, statistics_dtype
from regard.errors import ArgumentError
from regard.observation import Observation, Top, cells
from regard.operators import choose
from regard.spec import Spec, SpecArguments
from regard.state import State, merge, sink_state
from regard.statistics import Choice, Wanted, read, wanted, weight
from regard.tiles import scores, without_autocast
from regard.window import Window

BLOCK = 256  # rows of a window computed at once
FAR = 16  # steps between rows from which each is computed alone


def attend(
    query: Tensor, key: Tensor, value: Tensor, *, dropout: float = 0.0, **spec: Unpack[SpecArguments]
) -> Tensor:
    """Attention's output, exact, by the fastest road there is; differentiable.

        output = softmax(scale · query · keyᵀ + bias) · value

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`; `kv_heads` divides `heads`.
        value: `(batch, kv_heads, keys, value_dim)`.
        dropout: probability of dropping each weight (after the softmax), in training.
        **spec: mask, bias, scale, softcap, sink_logit, align: see `SpecArguments`.

    Returns:
        `(batch, heads, queries, value_dim)`; 0 for a query that may attend no key.

    Raises:
        ShapeError, MaskError, ArgumentError: inputs that do not fit together.
    """
    inputs = (query, key, value)
    # Overridable as torch's functions are, so that whoever watches sees the call, whatever computes it.
    if not torch.compiler.is_compiling() and has_torch_function(inputs):
        output: Tensor = handle_torch_function(attend, inputs, *inputs, dropout=dropout, **spec)
        return output
    sizes = sizes_of(query, key, value)
    if not 0.0 <= dropout < 1.0:
        raise ArgumentError(f"dropout must be at least 0 and below 1, got {dropout}")
    full = Spec.of(sizes, **spec).to(query.device)
    road = roads.exact(query, key, value, full, sizes, dropout)
    if road is not None:
        return road
    seed = int(torch.randint(2**31, ()).item()) if dropout else 0
    want = Wanted(dropout=dropout, seed=seed)
    state = _with_sink(
        choose("auto", query, key, value, full, want).rows(query, key, value, full, want), full
    )
    return _output(state, query, sizes)


def observe(
    query: Tensor,
    key: Tensor,
    value: Tensor | None = None,
    *,
    statistics: str | Choice | Iterable[str | Choice] | None = None,
    top: int = 0,
    map: int | None = None,
    engine: str = "auto",
    **spec: Unpack[SpecArguments],
) -> Observation:
    """Attention's output together with what it did, exact, in O(n) memory.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`; `kv_heads` divides `heads`.
        value: `(batch, kv_heads, keys, value_dim)`; None saves the output's product.
        statistics: None for every one of `regard.statistics.TABLE`, "rows", "columns", or names and
            `statistics.first(count)`, `statistics.local(radius)`, `statistics.group(name, keys)`.
        top: how many of the largest weights of each query to keep, with their keys.
        map: at most this many cells a side of a picture of the weights, pooled by mean and by max
            (for 1, two where the queries stand astride a multiple of every useful cell, as of position 0).
        engine: "auto", or the name of one, which then never falls back.
        **spec: mask, bias, scale, softcap, sink_logit, align: see `SpecArguments`.

    Returns:
        An `Observation`; lse, entropy, output and the linear row statistics are differentiable.

    Raises:
        ShapeError, MaskError, ArgumentError: inputs that do not fit together.
        EngineError: the engine asked for is not there or refuses.
    """
    sizes = sizes_of(query, key, value)
    full = Spec.of(sizes, **spec).to(query.device)
    want = wanted(statistics, top=top, cell=_cell(map, sizes, full), output=value is not None)
    for column in want.columns:
        column.check(sizes)
    runner = choose(engine, query, key, value, full, want)
    alone = runner.rows(query, key, value, full, want)
    state = _with_sink(alone, full)
    exact = statistics_dtype(query.dtype)
    rows = {n: t if t.dtype == torch.int64 else t.to(exact) for n, t in read(state, want, alone).items()}
    sums = runner.columns(query, key, full, state.lse.detach(), want) if want.second else None
    tops = None
    if top and state.top_scores is not None and state.top_keys is not None:
        tops = Top(weight(state.top_scores, state.lse[..., None]).detach().to(exact), state.top_keys)
    return Observation(
        **{name: tensor for name, tensor in rows.items() if not name.startswith("group:")},
        output=_output(state, query, sizes) if value is not None else None,
        received=None if sums is None else sums.received,
        received_max=None if sums is None else sums.received_max,
        groups={
            name.removeprefix("group:"): tensor for name, tensor in rows.items() if name.startswith("group:")
        },
        map=None if sums is None else sums.map,
        top=tops,
        engine=runner.name,
        parameters=want.parameters | ({"sink_logit": True} if full.sink_logit is not None else {}),
    )


def weights(
    query: Tensor,
    key: Tensor,
    *,
    rows: slice = slice(None),
    columns: slice = slice(None),
    **spec: Unpack[SpecArguments],
) -> Tensor:
    """An exact window of the weights; only the window is stored.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`.
        rows: which queries. columns: which keys. Slices, with steps if need be.
        **spec: mask, bias, scale, softcap, sink_logit, align: see `SpecArguments`.

    Returns:
        `(batch, heads, rows, columns)`; each row sums to 1 over *all* keys (less a learned sink's share).
    """
    sizes = sizes_of(query, key)
    return window_of(query, key, Spec.of(sizes, **spec).to(query.device), rows, columns)


@without_autocast
def window_of(query: Tensor, key: Tensor, spec: Spec, rows: slice, columns: slice) -> Tensor:
    """`weights` for a spec that has been checked already."""
    sizes = sizes_of(query, key)
    wanted_rows = range(*_bounds(rows, sizes.queries, "rows"))
    wanted_columns = range(*_bounds(columns, sizes.keys, "columns"))
    exact = statistics_dtype(query.dtype)
    if not wanted_rows or not wanted_columns:
        shape = (sizes.batch, sizes.heads, len(wanted_rows), len(wanted_columns))
        return query.new_zeros(shape, dtype=exact)
    # rows far apart one by one, others by blocks: never more scores than the window and one block of rows
    many = 1 if wanted_rows.step > FAR else max(1, BLOCK // wanted_rows.step)
    parts = [wanted_rows[start : start + many] for start in range(0, len(wanted_rows), many)]
    return torch.cat([_rows_of(query, key, spec, part, wanted_columns) for part in parts], 2)


def _rows_of(query: Tensor, key: Tensor, spec: Spec, rows: range, columns: range) -> Tensor:
    """The weights of neighbouring rows."""
    exact, keys = statistics_dtype(query.dtype), key.shape[2]
    q0, q1, k0, k1 = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    block, bias = query[:, :, q0:q1], None
    window = Window(spec.offset + q0, spec.offset + q1, k0, k1, spec.offset)
    tile, _ = scores(block.to(exact), key[:, :, k0:k1].to(exact), spec, window)
    if spec.bias is not None:
        bias = spec.bias.part(replace(window, k0=0, k1=keys))[0]
    local = replace(spec, offset=window.q0, bias=bias)
    want = Wanted(output=False)
    state = _with_sink(
        choose("auto", block, key, None, local, want).rows(block, key, None, local, want), local
    )
    return weight(tile, state.lse[..., None].to(exact))[:, :, :: rows.step, :: columns.step]


def _bounds(part: slice, size: int, name: str) -> tuple[int, int, int]:
    if not isinstance(part, slice):
        raise ArgumentError(f"{name} must be a slice, got {part!r}")
    start, stop, step = part.indices(size)
    if step < 1:
        raise ArgumentError(f"{name} must go forwards, got step {step}")
    return start, max(start, stop), step


def _with_sink(state: State, spec: Spec) -> State:
    return state if spec.sink_logit is None else merge(state, sink_state(state, spec.sink_logit))


def _output(state: State, query: Tensor, sizes: Sizes) -> Tensor:
    if state.o is None:
        return query.new_zeros((sizes.batch, sizes.heads, sizes.queries, sizes.value_dim))
    total = state.filled[..., None].to(state.o.dtype)
    if state.o.requires_grad or torch.compiler.is_compiling():
        return (state.o / total).to(query.dtype)
    return state.o.div_(total).to(query.dtype)  # in place: a second output of a long text would be felt


def _cell(grid: int | None, sizes: Sizes, spec: Spec) -> int:
    """Tokens per cell: the smallest power of two with at most `grid` cells a side."""
    if grid is None:
        return 0
    if grid < 1:
        raise ArgumentError(f"map must be at least 1 cell a side, got {grid}")
    start, stop = spec.offset, spec.offset + sizes.queries
    most = 2 * max(sizes.keys, sizes.queries)  # in larger cells, queries astride two stay so
    cell = 1
    while cell <= most and max(cells(start, stop, cell), cells(0, sizes.keys, cell)) > grid:
        cell *= 2
    return cell
