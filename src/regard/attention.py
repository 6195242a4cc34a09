"""The three verbs: `attend` computes attention, `observe` also says what it did, `weights` shows a window of it.

Knows how to check a call, pick a path and read the result; the folds are the engines'.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from regard.checks.arguments import share, shown, whole
from regard.checks.transforms import tracing, transforming
from regard.engines import tiles
from regard.engines.choice import choose, choose_for_output
from regard.engines.column_sums import Sums
from regard.engines.differentiable import columns as second_fold
from regard.engines.fast_paths import FastPath
from regard.engines.protocol import Runner
from regard.engines.walk import without_autocast
from regard.errors import ArgumentError, EngineError
from regard.masks.window import Window
from regard.products import with_sink
from regard.shapes import Sizes, sizes_of, statistics_dtype
from regard.spec import Spec, SpecArguments
from regard.statistics.formulas import named, read
from regard.statistics.observation import COLUMNS, OFFSETS, Observation, Top, cells
from regard.statistics.state import State
from regard.statistics.table import Choice, Wanted, wanted

# Rows of a window computed at once.
BLOCK = 256
# Largest weights of each query that may be asked for, whatever the number of keys.
MOST_TOP = 1024
# Steps between rows from which each is computed alone.
FAR = 16


def attend(
    query: Tensor, key: Tensor, value: Tensor, *, dropout: float = 0.0, **spec: Unpack[SpecArguments]
) -> Tensor:
    """Attention's output, exact, by the fastest path there is; differentiable.

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

    Example:
        >>> import regard as rg
        >>> query, key, value = torch.randn(2, 8, 5, 64), torch.randn(2, 2, 9, 64), torch.randn(2, 2, 9, 32)
        >>> rg.attend(query, key, value, mask=rg.causal()).shape
        torch.Size([2, 8, 5, 32])
    """
    inputs = (query, key, value)
    # Overridable as torch's functions are, so that whoever watches sees the call, whatever computes it.
    if not torch.compiler.is_compiling() and has_torch_function(inputs):
        output: Tensor = handle_torch_function(attend, inputs, *inputs, dropout=dropout, **spec)
        return output
    sizes = sizes_of(query, key, value)
    dropout = share("dropout", dropout)
    full = Spec.of(sizes, **spec).on(query.device)
    want = Wanted()
    # A seed is drawn only where it is used: torch's generator stays as the caller left it.
    if dropout:
        want = Wanted(dropout=dropout, seed=_seed())
    chosen = choose_for_output(query, key, value, full, sizes, want)
    if isinstance(chosen, FastPath):
        return chosen.output(query, key, value, full, sizes)
    return output_of(with_sink(chosen.rows(query, key, value, full, want), full), query, sizes)


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
        statistics: None for every row and column of `regard.statistics.TABLE`, "rows", "columns",
            or names and `statistics.first(count)`, `statistics.local(radius)`, `statistics.group(name, keys)`,
            `statistics.matching(name, query_ids, key_ids)`.
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

    Example:
        >>> import regard as rg
        >>> query, key = torch.randn(2, 8, 5, 64), torch.randn(2, 2, 9, 64)
        >>> seen = rg.observe(query, key, mask=rg.causal(), top=3, map=4)
        >>> seen.entropy.shape, seen.received.shape, seen.top.keys.shape, seen.map.mean.shape
        (torch.Size([2, 8, 5]), torch.Size([2, 8, 9]), torch.Size([2, 8, 5, 3]), torch.Size([2, 8, 2, 3]))
    """
    sizes = sizes_of(query, key, value)
    full = Spec.of(sizes, **spec).on(query.device)
    want = asked(sizes, full.offset, statistics, top, map, output=value is not None)
    return observed(query, key, value, full, want, top, engine)


def asked(
    sizes: Sizes,
    offset: int,
    statistics: str | Choice | Iterable[str | Choice] | None,
    top: int,
    map: int | None,
    *,
    output: bool,
) -> Wanted:
    """What `observe` asks of an engine for a call of these sizes, whose first query has this position.

    Raises:
        ArgumentError, ShapeError: it cannot be asked of such a call.
    """
    if whole("top", top, 0) > max(sizes.keys, MOST_TOP):
        raise ArgumentError(f"top must be at most the number of keys, {sizes.keys}, or {MOST_TOP}, got {top}")
    cell = 0
    if map is not None:
        cell = cell_of(map, sizes, offset)
    want = wanted(statistics, top=top, cell=cell, output=output)
    for column in want.columns:
        column.check(sizes, offset)
    return want


def observed(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    full: Spec,
    want: Wanted,
    top: int = 0,
    engine: str = "auto",
) -> Observation:
    """`observe` for a spec, where the tensors are, and a wish that have been checked already."""
    return observed_by(choose(engine, query, key, value, full, want), query, key, value, full, want, top)


def observed_by(
    runner: Runner, query: Tensor, key: Tensor, value: Tensor | None, full: Spec, want: Wanted, top: int = 0
) -> Observation:
    """`observed` by a runner that has been chosen already."""
    both = None
    if not top:
        both = _at_once(runner, query, key, value, full, want)
    if both is None:
        rows, sums, more = _folded(runner, query, key, value, full, want, top)
    else:
        rows, sums, more = *both, {}
    if sums is not None:
        more |= {name: getattr(sums, name) for name in (*COLUMNS, *OFFSETS, "map")}
    parameters = want.parameters
    if full.sink_logit is not None:
        parameters = parameters | {"sink_logit": True}
    more |= {name: tensor for name, tensor in rows.items() if not name.startswith("group:")}
    return Observation(
        groups={
            name.removeprefix("group:"): tensor for name, tensor in rows.items() if name.startswith("group:")
        },
        engine=runner.name,
        parameters=parameters,
        **more,
    )


def _at_once(
    runner: Runner, query: Tensor, key: Tensor, value: Tensor | None, full: Spec, want: Wanted
) -> tuple[dict[str, Tensor], Sums] | None:
    """Row statistics, the output and sums from an engine that gives all at once, where no derivative may be asked."""
    if "lse" not in want.names:
        return None
    inputs = [query, key]
    if value is not None:
        inputs.append(value)
    if full.bias is not None and full.bias.parameter is not None:
        inputs.append(full.bias.parameter)
    # What comes back at once has no graph behind it.
    if transforming(*inputs) or (torch.is_grad_enabled() and any(t.requires_grad for t in inputs)):
        return None
    return runner.look(query, key, value, full, want)


def _folded(
    runner: Runner, query: Tensor, key: Tensor, value: Tensor | None, full: Spec, want: Wanted, top: int
) -> tuple[dict[str, Tensor], Sums | None, dict[str, Any]]:
    """Row statistics, sums, and the other parts of an observation, from the two folds of an engine."""
    alone = runner.rows(query, key, value, full, want)
    state = with_sink(alone, full)
    exact = statistics_dtype(query.dtype)
    rows = read(state, want, alone, exact)
    sums = None
    more: dict[str, Any] = {}
    if want.second:
        sums = second_fold(runner, query, key, full, state.m, state.l.detach(), want)
    if top and state.top_scores is not None and state.top_keys is not None:
        more["top"] = Top(state.weight(state.top_scores).detach().to(exact), named(state.top_keys, state))
    if value is not None:
        more["output"] = output_of(state, query, sizes_of(query, key, value))
    # Which queries are valid is always known, be it by a boolean.
    if "lse" not in rows:
        more["attends"] = (state.l != 0).detach()
    return rows, sums, more


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
        `(batch, heads, rows, columns)`; each row sums to 1 over *all* keys (less what a learned sink takes).

    Example:
        >>> import regard as rg
        >>> query = key = torch.zeros(1, 1, 4, 8)
        >>> rg.weights(query, key, mask=rg.causal(), rows=slice(1, 3))[0, 0]
        tensor([[0.5000, 0.5000, 0.0000, 0.0000],
                [0.3333, 0.3333, 0.3333, 0.0000]])
    """
    sizes = sizes_of(query, key)
    return window_of(query, key, Spec.of(sizes, **spec).on(query.device), rows, columns)


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
    many = max(1, BLOCK // wanted_rows.step)
    if wanted_rows.step > FAR:
        many = 1
    parts = [wanted_rows[start : start + many] for start in range(0, len(wanted_rows), many)]
    return torch.cat([_rows_of(query, key, spec, part, wanted_columns) for part in parts], 2)


def _rows_of(query: Tensor, key: Tensor, spec: Spec, rows: range, columns: range) -> Tensor:
    """The weights of neighboring rows."""
    q0, q1, bias = rows[0], rows[-1] + 1, None
    block, every = (
        query[:, :, q0:q1],
        Window(spec.offset + q0, spec.offset + q1, 0, key.shape[2], spec.offset),
    )
    if spec.bias is not None:
        bias = spec.bias.part(every)[0]
    local = replace(spec, offset=every.q0, bias=bias)
    # The engine whose scores can be had: the weights are to be those of its own first fold.
    state = with_sink(tiles.rows(block, key, None, local, Wanted(output=False)), local)
    window = tiles.weights(block, key, local, state.m, state.l, columns[0], columns[-1] + 1)
    return window[:, :, :: rows.step, :: columns.step]


def _bounds(part: slice, size: int, name: str) -> tuple[int, int, int]:
    if not isinstance(part, slice):
        raise ArgumentError(f"{name} must be a slice, got {shown(part)}")
    try:
        start, stop, step = part.indices(size)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} must be a slice of whole numbers, got {part!r}: {error}") from None
    if step < 1:
        raise ArgumentError(f"{name} must go forwards, got step {step}")
    return start, max(start, stop), step


def _seed() -> int:
    """What decides which weights are dropped; below torch.vmap the same ones for all samples, if it says "same"."""
    try:
        return int(torch.randint(2**31, ()).item())
    except RuntimeError as error:
        if not transforming():
            raise
        raise EngineError(
            'dropout below torch.vmap must be drawn once for all samples: say randomness="same"'
        ) from error


def output_of(state: State, query: Tensor, sizes: Sizes) -> Tensor:
    """The output from the rows' state, a learned sink merged in; the state's o may be written over."""
    if state.o is None:
        return query.new_zeros((sizes.batch, sizes.heads, sizes.queries, sizes.value_dim))
    total, empty = state.filled[..., None].to(state.o.dtype), (state.l == 0)[..., None]
    if state.o.requires_grad or tracing(state.o) or transforming(state.o):
        return torch.where(empty, 0.0, state.o / total).to(query.dtype)
    # In place: a second output of a long text would be felt.
    output = state.o.div_(total)
    # A value that is NaN reaches an empty row where no mask hides it. A GPU would have to wait for the answer.
    if output.device.type != "cpu" or bool(empty.any()):
        output.masked_fill_(empty, 0.0)
    return output.to(query.dtype)


def cell_of(grid: int, sizes: Sizes, offset: int) -> int:
    """Tokens per cell of a map: the smallest power of two with at most `grid` cells a side."""
    if whole("map", grid) < 1:
        raise ArgumentError(f"map must be at least 1 cell a side, got {grid}")
    start, stop = offset, offset + sizes.queries
    # In larger cells, queries astride two stay so.
    most = 2 * max(sizes.keys, sizes.queries)
    cell = 1
    while cell <= most and max(cells(start, stop, cell), cells(0, sizes.keys, cell)) > grid:
        cell *= 2
    return cell
