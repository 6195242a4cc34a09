"""The folds as torch's own operators, `regard::rows` and `regard::columns`, for graphs such as torch.compile makes.

Knows how a spec and what is wanted become a string and tensors, and back; the folds are the engines'.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from regard import engines
from regard.engines.column_sums import Sums, sums_of
from regard.engines.protocol import Engine
from regard.engines.tiles.rows import blank
from regard.errors import ArgumentError, EngineError, MaskError
from regard.shapes import sizes_of, statistics_dtype, value_dim_of
from regard.spec import Spec, codec
from regard.statistics import linear
from regard.statistics.linear import Column
from regard.statistics.observation import cells
from regard.statistics.state import SUMS, State
from regard.statistics.table import Wanted

# The sums of a state that have a gradient.
GRADED = ("l", "u", "r", "o", "c")
WAY_OUT = "call attention outside of the compiled function, or below torch.compiler.disable"
# What every operator takes of a spec and of what is wanted: `recipe` is the structure around tensors and numbers.
PACKED = (
    "Tensor? bias, Tensor[] content, str recipe, SymInt[] numbers, float scale, float? softcap, float dropout"
)


@dataclass(frozen=True)
class Traced:
    """What a graph holds in an engine's place. "auto" stays "auto": it chooses anew each time that the graph runs."""

    name: str

    def rows(self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
        """The first fold, differentiable in query, key, value and a bias's tensor."""
        sums = torch.ops.regard.rows(query, key, value, *_packed(self.name, spec, want))
        return State(**dict(zip(_names(want, value_dim_of(value)), sums, strict=True)))

    def columns(self, query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted) -> Sums:
        """The second fold."""
        packed = _packed(self.name, spec, want)
        tensors = torch.ops.regard.columns(*(t.detach() for t in (query, key, m, l)), *packed)
        return sums_of(tensors, query, key, spec, want)

    def look(
        self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted
    ) -> tuple[dict[str, Tensor], Sums] | None:
        """None: a graph holds the two folds one after the other."""
        return None


# --- a call as strings, numbers and tensors ----------------------------------------------------------------


def _packed(engine: str, spec: Spec, want: Wanted) -> tuple[Any, ...]:
    """The arguments that `PACKED` lists.

    Raises:
        EngineError: the call holds Python code.
    """
    code = [column.name for column in want.columns if not column.kind]
    if code:
        raise EngineError(f"the column {code[0]!r} is Python code, which a graph cannot hold: {WAY_OUT}")
    try:
        # A learned sink is merged by the caller; the operators know nothing of it.
        body, tensors = codec.encode(replace(spec, sink_logit=None))
    except MaskError as error:
        raise EngineError(f"{error}, so a graph cannot hold it: {WAY_OUT}") from None
    except ArgumentError as error:
        raise EngineError(f"{error}, which a graph cannot hold: {WAY_OUT}") from None
    bias = tensors.pop("bias", None)
    learned = bias is not None and bias.requires_grad and torch.is_grad_enabled()
    flags = [want.output, want.entropy, want.squares, want.count, want.least]
    flags += [want.received, want.received_max, want.by_offset]
    columns = [[column.kind, column.name] for column in want.columns]
    content = [*tensors.values(), *(tensor for column in want.columns for tensor in column.tensors)]
    numbers = [spec.offset, want.seed, want.top, want.cell]
    numbers += [number for c in want.columns for number in (c.count, c.low, c.high)]
    mask = _emptied(body["mask"], numbers)
    recipe = repr([engine, mask, list(tensors), body["bias"], learned, flags, columns])
    return bias, content, recipe, numbers, spec.scale, spec.softcap, want.dropout


def _emptied(part: Any, numbers: list[int]) -> Any:
    """A packed mask with the places of its integers, which move to `numbers`: they may be sizes of the graph."""
    if isinstance(part, dict):
        return {name: _emptied(inner, numbers) for name, inner in part.items()}
    if isinstance(part, list):
        return [_emptied(inner, numbers) for inner in part]
    if not isinstance(part, int):
        return part
    numbers.append(part)
    return len(numbers) - 1


def _filled(part: Any, numbers: Sequence[int]) -> Any:
    """What `_emptied` emptied."""
    if isinstance(part, dict):
        return {name: _filled(inner, numbers) for name, inner in part.items()}
    if isinstance(part, list):
        return [_filled(inner, numbers) for inner in part]
    if isinstance(part, int):
        return numbers[part]
    return part


# A graph runs one recipe again and again.
@lru_cache(maxsize=256)
def _read(recipe: str) -> list[Any]:
    return list(literal_eval(recipe))


def _wanted(packed: Sequence[Any]) -> Wanted:
    """What is wanted, as it was before it was packed."""
    _, content, recipe, (_, seed, top, cell, *numbers), _, _, dropout = packed
    *_, names, _, _, flags, columns = _read(recipe)
    output, entropy, squares, count, least, received, received_max, by_offset = flags
    tensors, left = iter(content[len(names) :]), iter(numbers)
    linears = tuple(
        _column(kind, name, next(left), next(left), next(left), tensors) for kind, name in columns
    )
    return Wanted(
        output=output,
        entropy=entropy,
        squares=squares,
        count=count,
        columns=linears,
        top=top,
        received=received,
        received_max=received_max,
        cell=cell,
        by_offset=by_offset,
        dropout=dropout,
        seed=seed,
        least=least,
    )


def _column(kind: str, name: str, count: int, low: int, high: int, tensors: Iterator[Tensor]) -> Column:
    if kind == "first":
        return linear.first(count)
    if kind == "band":
        return linear.band(name, low, high)
    if kind == "group":
        return linear.group(name.removeprefix("group:"), next(tensors))
    if kind == "match":
        return linear.match(name.removeprefix("group:"), next(tensors), next(tensors), low, high)
    return {column.kind: column for column in (linear.POSITION, linear.SQUARE, linear.DISTANCE)}[kind]


def _unpacked(
    query: Tensor, key: Tensor, value: Tensor | None, packed: Sequence[Any]
) -> tuple[Engine, Spec, Wanted]:
    """The engine chosen, the spec, checked as outside of a graph, and what is wanted."""
    values, content, recipe, numbers, scale, softcap, _ = packed
    engine, mask, names, kind, learned, *_ = _read(recipe)
    tensors = dict(zip(names, content, strict=False))
    if values is not None:
        tensors["bias"] = values.detach().requires_grad_(learned)
    body = {"scale": scale, "softcap": softcap, "offset": numbers[0], "bias": kind, "sink_logit": False}
    sizes, want = sizes_of(query, key, value), _wanted(packed)
    spec = codec.decode(body | {"mask": _filled(mask, numbers)}, tensors, sizes).on(query.device)
    # An engine may refuse a bias that is learned, and only such a one.
    with torch.set_grad_enabled(learned):
        return engines.choose(engine, query, key, value, spec, want), spec, want


def _names(want: Wanted, value_dim: int) -> list[str]:
    """Names of the sums that a state holds, in their order."""
    optional = {
        "u": want.entropy,
        "r": want.squares,
        "o": want.output and value_dim > 0,
        "c": bool(want.columns),
        "count": want.count,
        "least": want.least,
        "top_scores": want.top > 0,
        "top_keys": want.top > 0,
    }
    return [name for name in SUMS if optional.get(name, True)]


def _listed(state: State) -> list[Tensor]:
    return [tensor for name in SUMS if (tensor := getattr(state, name)) is not None]


def _uniform(state: State) -> State:
    """The state with scores in the type of its sums, as the native engine gives it: a graph knows no engine."""
    scores = {name: getattr(state, name) for name in ("m", "least", "top_scores")}
    return replace(state, **{name: t.to(state.l.dtype) for name, t in scores.items() if t is not None})


# --- the operators -----------------------------------------------------------------------------------------


@torch.library.custom_op(
    "regard::rows", mutates_args=(), schema=f"(Tensor query, Tensor key, Tensor? value, {PACKED}) -> Tensor[]"
)
@torch.no_grad()
def _rows(query, key, value, *packed):  # type: ignore[no-untyped-def]
    engine, spec, want = _unpacked(query, key, value, packed)
    return _listed(_uniform(engine.rows(query, key, value, spec, want)))


@_rows.register_fake
def _(query, key, value, *packed):  # type: ignore[no-untyped-def]
    return _listed(_uniform(blank(query, sizes_of(query, key, value), _wanted(packed))))


@torch.library.custom_op(
    "regard::rows_backward",
    mutates_args=(),
    schema=f"(Tensor query, Tensor key, Tensor? value, {PACKED}, Tensor[] sums, str graded, bool[] needed)"
    " -> Tensor[]",
)
@torch.no_grad()
def _rows_backward(query, key, value, *packed):  # type: ignore[no-untyped-def]
    *call, (m, normalizer, *state_grads), graded, needed = packed
    engine, spec, want = _unpacked(query, key, value, call)
    grads = State(**{"l": None, "m": m} | dict(zip(graded.split(), state_grads, strict=True)))
    grads_of_inputs = engine.vjp(query, key, value, spec, want, grads, normalizer, needed)
    # Contiguous, as a graph expects; what its engine gives is laid out like the inputs, perhaps.
    wanted = [grad for grad, need in zip(grads_of_inputs, needed, strict=False) if need and grad is not None]
    return [grad.contiguous() for grad in wanted]


@_rows_backward.register_fake
def _(query, key, value, bias, *rest):  # type: ignore[no-untyped-def]
    inputs = zip((query, key, value, bias), rest[-1], strict=True)
    return [
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor, need in inputs if need
    ]


def _remember(ctx, inputs, output):  # type: ignore[no-untyped-def]
    query, key, value, bias, content, *ctx.rest = inputs
    ctx.want = _wanted((bias, content, *ctx.rest))
    ctx.names = _names(ctx.want, value_dim_of(value))
    constants = [t for name, t in zip(ctx.names, output, strict=True) if name not in GRADED]
    # Every reading of the state is the same for any m.
    ctx.mark_non_differentiable(*constants)
    # What no one differentiates costs nothing.
    ctx.set_materialize_grads(False)
    m, normalizer = output[:2]
    ctx.save_for_backward(query, key, value, bias, m, normalizer, *content)


def _backward(ctx, grads):  # type: ignore[no-untyped-def]
    query, key, value, bias, m, normalizer, *content = ctx.saved_tensors
    state_grads = {n: g for n, g in zip(ctx.names, grads, strict=True) if n in GRADED and g is not None}
    needed, sums = list(ctx.needs_input_grad[:4]), [m, normalizer, *state_grads.values()]
    packed = (bias, content, *ctx.rest)
    graded = " ".join(state_grads)
    results = iter(torch.ops.regard.rows_backward(query, key, value, *packed, sums, graded, needed))
    spread = [next(results) if need else None for need in needed]
    return *spread, [None] * len(content), *[None] * len(ctx.rest)


def _no_second(ctx, *_):  # type: ignore[no-untyped-def]
    raise EngineError(
        "within a graph attention's gradient can be taken once, it has no gradient of its own there: for a second "
        f"derivative {WAY_OUT}"
    )


torch.library.register_autograd("regard::rows", _backward, setup_context=_remember)
torch.library.register_autograd("regard::rows_backward", _no_second)


@torch.library.custom_op(
    "regard::columns",
    mutates_args=(),
    schema=f"(Tensor query, Tensor key, Tensor m, Tensor l, {PACKED}) -> Tensor[]",
)
@torch.no_grad()
def _columns(query, key, m, l, *packed):  # type: ignore[no-untyped-def]
    engine, spec, want = _unpacked(query, key, None, packed)
    return engine.columns(query, key, spec, m, l, want).tensors()


@_columns.register_fake
def _(query, key, m, l, *packed):  # type: ignore[no-untyped-def]
    sizes, want, exact = sizes_of(query, key), _wanted(packed), statistics_dtype(query.dtype)
    outer, offset = (sizes.batch, sizes.heads), packed[3][0]
    sums = [query.new_empty(*outer, sizes.keys, dtype=exact)] * (want.received + want.received_max)
    if want.by_offset:
        sums.append(query.new_empty(*outer, sizes.diagonals, dtype=exact))
    if want.cell:
        grid_q, grid_k = cells(offset, offset + sizes.queries, want.cell), cells(0, sizes.keys, want.cell)
        sums += [query.new_empty(*outer, grid_q, grid_k, dtype=exact)] * 2
        sums.append(query.new_empty(*outer, grid_q, dtype=torch.int64))
    # Each its own: outputs of an operator must not share memory.
    return [torch.empty_like(tensor) for tensor in sums]


# --- torch.vmap in graphs ----------------------------------------------------------------------------------


def _one_by_one(operator: Any) -> Any:
    """The rule of torch.vmap: every sample by itself, as outside of graphs."""

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[list[Tensor], list[int]]:
        samples = [
            operator(*(_sample(value, axis, i) for value, axis in zip(arguments, in_dims, strict=True)))
            for i in range(info.batch_size)
        ]
        joined = [torch.stack(parts) for parts in zip(*samples, strict=True)]
        return joined, [0] * len(joined)

    return rule


def _sample(value: Any, axis: Any, i: int) -> Any:
    """One sample of an argument, in which tensors may be below one another in a list."""
    if isinstance(value, list) and isinstance(axis, list):
        return [_sample(inner, inner_axis, i) for inner, inner_axis in zip(value, axis, strict=True)]
    if axis is None:
        return value
    return value.select(axis, i)


for _operator in (_rows, _rows_backward, _columns):
    _operator.register_vmap(_one_by_one(_operator))
