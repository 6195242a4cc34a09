"""From the kept vectors of a call to weights, also where the steps of a generation had specs of their own.

Knows specs and windows; it does not know records.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention import window_of
from regard.errors import ArgumentError, MaskError
from regard.masks import NONE, And, Documents, Mask, Not, Or, Padding, Prefix, Tile, causal
from regard.masks import Dense as DenseMask
from regard.masks.algebra import Index
from regard.spec import Spec
from regard.spec.bias import Alibi, Bias, Dense, Logarithm, Relative, ScoreMod

# Pairs of query and key that are compared one by one to see whether two masks agree; of more, equal values alone count.
MAX_PAIRS = 1 << 22


@dataclass(frozen=True, eq=False)
class Part:
    """The next `queries` of a call, which saw its first `keys` under one spec."""

    queries: int
    keys: int
    spec: Spec


def window(query: Tensor, key: Tensor, parts: tuple[Part, ...], rows: slice, columns: slice) -> Tensor:
    """An exact window of the weights of parts that follow each other.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`.
        parts: together they have all queries.
        rows: which queries. columns: which keys. Slices that go forwards.

    Returns:
        `(batch, heads, rows, columns)`; a key that a part did not have yet has weight 0.
    """
    for name, which in (("rows", rows), ("columns", columns)):
        if not isinstance(which, slice) or (which.step or 1) < 1:
            raise ArgumentError(f"{name} must be a slice that goes forwards, got {which!r}")
    row, column, first, tiles = range(query.shape[2])[rows], range(key.shape[2])[columns], 0, []
    for part in parts:
        # Of a slice with a step, the first row that falls into this part.
        skipped = max(0, -(-(first - row.start) // row.step))
        local = slice(row.start + skipped * row.step - first, max(0, row.stop - first), row.step)
        tile = window_of(
            query[:, :, first : first + part.queries],
            key[:, :, : part.keys],
            part.spec,
            local,
            slice(column.start, min(column.stop, part.keys), column.step),
        )
        tiles.append(pad(tile, (0, len(column) - tile.shape[3])))
        first += part.queries
    return torch.cat(tiles, 2)


def join(parts: tuple[Part, ...], step: Part) -> tuple[Part, ...]:
    """The parts and then the step, as part of the last one where its spec says the same about the step."""
    *earlier, last = parts
    # A single query sees all keys with and without a causal mask; only with it the same holds for longer keys.
    for spec in (step.spec, _causal(step)):
        if _extends(last, replace(step, spec=spec)):
            return (*earlier, Part(last.queries + step.queries, step.keys, last.spec))
    return (*parts, replace(step, spec=_causal(step)))


def _causal(step: Part) -> Spec:
    """The spec of a single query at the end, said so that it also holds when more keys come."""
    if step.queries != 1 or step.spec.offset + 1 != step.keys:
        return step.spec
    mask = causal()
    if step.spec.mask is not None:
        mask = step.spec.mask & mask
    return replace(step.spec, mask=mask)


def _extends(last: Part, step: Part) -> bool:
    """Whether the last part's spec, given the step's keys, says what it said, and what the step's says."""
    a, b = last.spec, step.spec
    stop = a.offset + last.queries
    if b.offset != stop or (a.scale, a.softcap) != (b.scale, b.softcap):
        return False
    if not (_same(a.sink_logit, b.sink_logit) and _same(a.bias, b.bias)):
        return False
    # No earlier query may see the keys that are new.
    grown = last.queries and step.keys > last.keys
    if grown and (a.mask is None or a.mask.tile(a.offset, stop, last.keys, step.keys) is not NONE):
        return False
    return _agree(a.mask, b.mask, step)


def _agree(a: Mask | None, b: Mask | None, step: Part) -> bool:
    """Whether two masks allow the same pairs of the step's queries and keys."""
    try:
        for mask in (a, b):
            if mask is not None:
                mask.check(*mask.shape, step.queries, step.keys, step.spec.offset)
        if a == b or step.queries * step.keys > MAX_PAIRS:
            return a == b
        return torch.equal(*torch.broadcast_tensors(_dense(a, step), _dense(b, step)))
    # Content bound to the positions of another part.
    except MaskError:
        return False


def _dense(mask: Mask | None, step: Part) -> Tensor:
    if mask is None:
        return torch.ones(1, 1, step.queries, step.keys, dtype=torch.bool)
    return mask.to("cpu").dense(step.queries, step.keys, offset=step.spec.offset)


def _same(a: object, b: object) -> bool:
    """Whether two biases or tensors hold the same."""
    if isinstance(a, Bias) and type(a) is type(b):
        return all(_same(getattr(a, item.name), getattr(b, item.name)) for item in fields(a))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    return a is b or (isinstance(a, int) and a == b)


@dataclass(frozen=True, eq=False, repr=False)
class OneHead(Mask):
    """`mask` as one head of one row of the batch sees it, for a call that holds nothing else."""

    mask: Mask
    batch: int
    head: int

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        return self.mask._allows(q_pos, k_pos, self.batch, self.head)

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        """That of the whole mask: always safe."""
        return self.mask.tile(q0, q1, k0, k1)

    @property
    def name(self) -> str:
        """That of the whole mask, and which head."""
        return f"{self.mask.name} in row {self.batch}, head {self.head}"


def one_head(spec: Spec, batch: int, head: int) -> Spec:
    """The spec of one head of one row of the batch, for vectors `(1, 1, tokens, dim)`."""
    mask, bias, sink_logit = spec.mask, spec.bias, spec.sink_logit
    if mask is not None:
        mask = _one_mask(mask, batch, head)
    if bias is not None:
        bias = _one_bias(bias, batch, head)
    if sink_logit is not None:
        sink_logit = sink_logit[head : head + 1]
    return replace(spec, mask=mask, bias=bias, sink_logit=sink_logit)


def _one_mask(mask: Mask, batch: int, head: int) -> Mask:
    """The mask as one head sees it, of content of its own where it is one of Regard's, which every engine knows."""
    kind = type(mask)
    if isinstance(mask, And | Or) and kind in (And, Or):
        return type(mask)(tuple(_one_mask(part, batch, head) for part in mask.masks))
    if isinstance(mask, Not) and kind is Not:
        return Not(_one_mask(mask.mask, batch, head))
    # The same for all heads and rows of the batch.
    if mask.shape == (1, 1):
        return mask
    match mask:
        case Prefix(length=length) if kind is Prefix:
            return Prefix(_one_row(length, batch))
        case Padding(lengths=lengths, start=start) if kind is Padding:
            return Padding(_one_row(lengths, batch), _one_row(start, batch))
        case Documents(ids=ids) if kind is Documents:
            return Documents(ids[batch])
        case DenseMask(bits=bits) if kind is DenseMask:
            row, column = batch % bits.shape[0], head % bits.shape[1]
            return DenseMask(bits[row : row + 1, column : column + 1], mask.keys, mask.offset)
    return OneHead(mask, batch, head)


def _one_row(value: int | Tensor, batch: int) -> int | Tensor:
    if isinstance(value, int):
        return value
    row = batch % value.shape[0]
    return value[row : row + 1]


def _one_bias(bias: Bias, batch: int, head: int) -> Bias:
    match bias:
        case Dense(values=values):
            # An axis of 1 serves all.
            return bias.with_values(values[batch % values.shape[0] :, head % values.shape[1] :][:1, :1])
        case Alibi(values=values) | Relative(values=values):
            return bias.with_values(values[head % values.shape[0] :][:1])
        case Logarithm():
            return bias
        case ScoreMod(function=function):
            return replace(
                bias, function=lambda score, _batch, _head, q, k: function(score, batch, head, q, k)
            )
    raise ArgumentError(f"no window can be computed with a bias of type {type(bias).__name__}")
