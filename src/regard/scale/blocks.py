"""A rectangle of a long call: some of its queries and some of its keys, as a call that engines know.

Engines count keys from 0. So a block counts positions from its own first key, and mask, bias and linear statistics are
moved there; positions come back into the results. Knows nothing of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.column_sums import Sums
from regard.engines.protocol import Engine
from regard.masks import prefix
from regard.masks.moved import moved
from regard.masks.tile import NONE
from regard.masks.window import Window
from regard.spec import Spec
from regard.spec.bias import Alibi, Bias, Dense, Index, Logarithm, Relative
from regard.statistics.linear import POSITION, SQUARE, Column, match
from regard.statistics.state import State
from regard.statistics.table import Wanted

# Of these only differences of positions count, or none.
INVARIANT = (Alibi, Relative, Logarithm)


@dataclass(frozen=True, eq=False)
class MovedBias(Bias):
    """`bias` at positions that are greater by `by`, as of a call whose first query is at `offset`."""

    bias: Bias
    by: int
    offset: int

    @property
    def may_block(self) -> bool:
        return self.bias.may_block

    @property
    def parameter(self) -> Tensor | None:
        return self.bias.parameter

    def with_values(self, values: Tensor) -> Bias:
        return replace(self, bias=self.bias.with_values(values))

    def apply(self, scores: Tensor, window: Window) -> Tensor:
        return self.bias.apply(scores, self._there(window))

    def blocks(self, scores: Tensor, result: Tensor, window: Window) -> Tensor:
        return self.bias.blocks(scores, result, self._there(window))

    def vjp(
        self, scores: Tensor, grad: Tensor, window: Window, learned: bool
    ) -> tuple[Tensor, Tensor | None]:
        return self.bias.vjp(scores, grad, self._there(window), learned)

    def _there(self, window: Window) -> Window:
        by = self.by
        return replace(
            window,
            q0=window.q0 + by,
            q1=window.q1 + by,
            k0=window.k0 + by,
            k1=window.k1 + by,
            offset=self.offset,
        )


@dataclass(frozen=True)
class Block:
    """Queries at neighboring positions against keys at neighboring positions.

    Attributes:
        spec: of the whole call; a dense bias has the rows of this process's queries and the columns of all keys.
        want: of the whole call.
        queries, keys: absolute positions; neither is empty.
        row: which of this process's queries is the first.
        offset: position of the first query of the whole call.
    """

    spec: Spec
    want: Wanted
    queries: range
    keys: range
    row: int
    offset: int

    @cached_property
    def margin(self) -> int:
        """Masked keys put before the block's own, so that its map has the cells of the whole one."""
        if not self.want.cell:
            return 0
        return self.keys.start % self.want.cell

    @property
    def by(self) -> int:
        """The position from which the block counts."""
        return self.keys.start - self.margin

    @property
    def empty(self) -> bool:
        """Whether the mask is known to leave nothing of it."""
        mask, q, k = self.spec.mask, self.queries, self.keys
        return mask is not None and mask.tile(q.start, q.stop, k.start, k.stop) is NONE

    @cached_property
    def local(self) -> Spec:
        """The spec as the block counts positions."""
        first = self.queries.start - self.by
        mask = self.spec.mask
        if mask is not None:
            mask = moved(mask, self.by, first)
        # The margin has no keys of this call.
        if self.margin:
            # The margin's keys are zeros that nobody may attend.
            hidden = ~prefix(self.margin)
            mask = hidden if mask is None else mask & hidden
        bias = self.spec.bias
        # A tensor is cut; what is computed from positions is asked at those of the whole call.
        if isinstance(bias, Dense):
            values = bias.values[self.bias_index]
            if values.shape[3] > 1 or bias.values.shape[3] > 1:
                values = pad(values, (self.margin, 0))
            # Its columns begin with the block's first key, as positions do.
            bias = Dense(values, row=first)
        elif bias is not None and type(bias) not in INVARIANT:
            # What looks at positions itself is shown those of the whole call.
            bias = MovedBias(bias, self.by, self.offset)
        return replace(self.spec, offset=first, mask=mask, bias=bias, sink_logit=None)

    @property
    def bias_index(self) -> Index:
        """Where the block's part of the bias's tensor lies in it: of others than dense ones it is all of it."""
        bias, q, k = self.spec.bias, self.queries, self.keys
        if not isinstance(bias, Dense):
            return ()
        rows = columns = slice(None)
        # An axis of one is that of all queries, or keys.
        if bias.values.shape[2] > 1:
            rows = slice(self.row, self.row + len(q))
        if bias.values.shape[3] > 1:
            columns = slice(k.start, k.stop)
        return slice(None), slice(None), rows, columns

    @cached_property
    def local_want(self) -> Wanted:
        """What is wanted, its linear statistics as the block counts positions."""
        first = self.queries.start - self.by
        count = self.margin + len(self.keys)
        columns = tuple(_moved_column(column, self.by, first, count) for column in self.want.columns)
        return replace(self.want, columns=columns)

    def padded(self, tensor: Tensor) -> Tensor:
        """The block's part of keys or values, with its margin."""
        if not self.margin:
            return tensor
        return pad(tensor, (0, 0, self.margin, 0))

    def state(self, engine: Engine, query: Tensor, key: Tensor, value: Tensor | None) -> State:
        """The first fold: the state of its queries over its keys."""
        if value is not None:
            value = self.padded(value)
        state = engine.rows(query, self.padded(key), value, self.local, self.local_want)
        changed: dict[str, Any] = {}
        if state.c is not None:
            # In float64, as the sums are: nothing is lost by moving them.
            changed["c"] = self._absolute(state.c, state.l)
        if state.top_keys is not None:
            changed["top_keys"] = torch.where(state.top_keys < 0, -1, state.top_keys + self.by)
        return replace(state, **changed)

    def _absolute(self, c: Tensor, l: Tensor) -> Tensor:
        """Sums of k and k² about position 0, given those about the block's own."""
        c, by = c.clone(), self.by
        for i, column in enumerate(self.want.columns):
            # (k + by)² = k² + 2·by·k + by², where the sum of k may not have been asked for.
            if column is SQUARE:
                c[..., i] += 2 * by * c[..., self._position] + by * by * l
        # After the squares, which need the sums about the block's own position.
        for i, column in enumerate(self.want.columns):
            if column is POSITION:
                c[..., i] += by * l
        return c

    @property
    def _position(self) -> int:
        return self.want.columns.index(POSITION)

    def sums(self, engine: Engine, query: Tensor, key: Tensor, m: Tensor, l: Tensor) -> Sums:
        """The second fold, given the rows' m and l over all keys; column statistics without the margin."""
        sums = engine.columns(query, self.padded(key), self.local, m, l, self.local_want)
        received, received_max = sums.received, sums.received_max
        if received is not None:
            received = received[:, :, self.margin :]
        if received_max is not None:
            received_max = received_max[:, :, self.margin :]
        return replace(sums, received=received, received_max=received_max)

    def vjp(
        self,
        engine: Engine,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        grads: State,
        normalizer: Tensor,
        needed: Sequence[bool],
    ) -> tuple[Tensor | None, ...]:
        """Gradients of its queries, keys, values and part of the bias's tensor; arguments as for `Engine.vjp`."""
        if value is not None:
            value = self.padded(value)
        local = self._relative(grads)
        args = (query, self.padded(key), value, self.local, self.local_want, local, normalizer, needed)
        query_grad, key_grad, value_grad, bias_grad = engine.vjp(*args)
        if key_grad is not None:
            key_grad = key_grad[:, :, self.margin :]
        if value_grad is not None:
            value_grad = value_grad[:, :, self.margin :]
        bias = self.spec.bias
        if bias_grad is not None and isinstance(bias, Dense) and bias.values.shape[3] > 1:
            bias_grad = bias_grad[..., self.margin :]
        return query_grad, key_grad, value_grad, bias_grad

    def _relative(self, grads: State) -> State:
        """Gradients of the sums about the block's own positions, given those about 0: `_absolute` transposed."""
        if grads.c is None or not self.by:
            return grads
        c, by, l = grads.c.clone(), self.by, grads.l
        for i, column in enumerate(self.want.columns):
            if column is POSITION:
                l = _plus(l, by * grads.c[..., i])
            elif column is SQUARE:
                c[..., self._position] += 2 * by * grads.c[..., i]
                l = _plus(l, by * by * grads.c[..., i])
        return replace(grads, c=c, l=l)


def _plus(total: Tensor | None, more: Tensor) -> Tensor:
    if total is None:
        return more
    return total + more


def _moved_column(column: Column, by: int, first_query: int, keys: int) -> Column:
    """A linear statistic for keys that are counted from position `by`."""
    if by == 0 and column.kind != "group":
        return column
    if column.kind in ("position", "square", "distance", "band"):
        return column
    # Only as many of the first keys as lie behind that position.
    if column.kind == "first":
        # Of the first keys the block holds those that are left of its own.
        count = max(0, column.count - by)
        return replace(column, phi=lambda w, d: w.k(d) < count, touches=lambda w: w.k0 < count, count=count)
    if column.kind == "group" and column.members is not None:
        members = column.members[..., by : by + keys]

        def phi(window: Window, device: torch.device) -> Tensor:
            part = members[..., window.columns].to(device)
            if part.ndim == 1:
                return part
            return part[:, None, None, :]

        return replace(column, phi=phi, shape=tuple(members.shape), members=members)
    if column.kind == "match" and first_query >= 0:
        assert column.query_ids is not None and column.key_ids is not None
        name = column.name.removeprefix("group:")
        query_ids, key_ids = (side[..., by:] for side in (column.query_ids, column.key_ids))
        return match(name, query_ids, key_ids, column.low, column.high)

    def there(window: Window) -> Window:
        changes = {side: getattr(window, side) + by for side in ("q0", "q1", "k0", "k1", "offset")}
        return replace(window, **changes)

    # Any other is asked at its own positions: engines that must know what it is leave it to those that call it.
    return Column(column.name, lambda w, d: column.phi(there(w), d), lambda w: column.touches(there(w)))
