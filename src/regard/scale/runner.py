"""The two folds of a call whose queries and keys lie on many processes, and the gradient of the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.engines.column_sums import Sums, blank_map
from regard.engines.memory import gradient_sums, in_input_types
from regard.engines.protocol import Engine
from regard.engines.second import GRADED
from regard.scale.blocks import Block
from regard.scale.layout import Layout
from regard.scale.links import Links
from regard.scale.plans import Keys, Plan
from regard.shapes import Sizes, statistics_dtype
from regard.spec import Spec
from regard.statistics import offsets
from regard.statistics.observation import Map
from regard.statistics.state import SUMS, State, identity, merge
from regard.statistics.table import Wanted

CONSTANT = ("m", "count", "least", "top_scores", "top_keys")


@dataclass(frozen=True)
class Sharded:
    """A `Runner` of one process's part of a call: queries that it holds, keys that lie on all processes.

    Attributes:
        queries: the positions of this process's queries.
        first: position of the first query of the whole sequence.
        keys: where the keys lie.
        sizes: of the whole sequence.
        engine: computes every block of the call, on every process.
    """

    links: Links
    plan: Plan
    queries: tuple[range, ...]
    first: int
    keys: Layout
    sizes: Sizes
    engine: Engine

    @property
    def name(self) -> str:
        """The engine's."""
        return self.engine.name

    def look(self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted, /) -> None:
        """None: the folds are asked for one after the other."""

    def rows(self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted, /) -> State:
        """The states of this process's queries over all keys, differentiable on every process at once."""
        inputs = [t for t in (query, key, value, spec.parameter) if t is not None]
        if torch.is_grad_enabled() and any(t.requires_grad for t in inputs):
            return State(*_Rows.apply(query, key, value, spec.parameter, spec, want, self))
        return self.fold(query, key, value, spec, want)

    @torch.no_grad()
    def fold(self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
        """`rows` without a gradient."""
        parts = self._stretches()
        states: list[State] = [self._blank(query[:, :, rows], key, value, spec, want) for rows, _ in parts]

        def visit(stretches: tuple[range, ...], tensors: list[Tensor], _: list[Tensor]) -> None:
            for number, block, rows, columns in self._blocks(stretches, spec, want):
                values = None
                if value is not None:
                    values = tensors[1][:, :, columns]
                state = block.state(self.engine, query[:, :, rows], tensors[0][:, :, columns], values)
                # Any order of blocks gives one state: merging is associative and commutative.
                states[number] = merge(states[number], state)

        tensors = [key]
        if value is not None:
            tensors.append(value)
        self.plan.bring(self.links, Keys(self.keys, tensors), visit)
        # A process without queries still has states, of none.
        if not states:
            states = [self._blank(query[:, :, :0], key, value, spec, want)]
        return self.plan.complete(self.links, _concatenated(states))

    @torch.no_grad()
    def columns(self, query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted, /) -> Sums:
        """The second fold: statistics of this process's keys; the map and sums by offset of the whole sequence."""
        exact = statistics_dtype(query.dtype)
        sizes = self.sizes
        blank = query.new_zeros((sizes.batch, sizes.heads, key.shape[2]), dtype=exact)
        flags = {"received": want.received, "received_max": want.received_max}
        # Only what was asked for goes round with the keys.
        names = [name for name, wanted in flags.items() if wanted]
        # Sums of different processes are added on their way, and largest weights compared.
        maxima = [name == "received_max" for name in names]
        picture, by_offset = self._picture(query, l, spec, want), None
        if want.by_offset:
            by_offset = query.new_zeros((sizes.batch, sizes.heads, sizes.diagonals), dtype=exact)

        def visit(stretches: tuple[range, ...], tensors: list[Tensor], totals: list[Tensor]) -> None:
            for _, block, rows, columns in self._blocks(stretches, spec, want):
                query_part, key_part = query[:, :, rows], tensors[0][:, :, columns]
                sums = block.sums(self.engine, query_part, key_part, m[:, :, rows], l[:, :, rows])
                for name, total in zip(names, totals, strict=True):
                    view, part = total[:, :, columns], getattr(sums, name)
                    if name == "received_max":
                        torch.maximum(view, part, out=view)
                    else:
                        view += part
                self._add(block, sums, picture, by_offset)

        keys = Keys(self.keys, [key], [blank.clone() for _ in names], maxima)
        totals = self.plan.bring(self.links, keys, visit)
        results: dict[str, Any] = dict(zip(names, totals, strict=True))
        if by_offset is not None:
            # Every pair of query and key was in one process's blocks.
            by_offset = self.links.total(by_offset)
        return Sums(results.get("received"), results.get("received_max"), self._joined(picture), by_offset)

    def _picture(self, query: Tensor, l: Tensor, spec: Spec, want: Wanted) -> Map | None:
        """The blank map of the whole sequence, with this process's queries counted."""
        sizes = self.sizes
        # No row of cells has a query before the stretches are counted.
        nothing = l.new_zeros(()).expand(sizes.batch, sizes.heads, sizes.queries)
        empty = blank_map(query, sizes, spec, nothing, want.cell)
        if empty is None:
            return None
        for rows, queries in self._stretches():
            part = l[:, :, rows]
            local = replace(sizes, queries=len(queries), keys=0)
            counted = blank_map(query, local, replace(spec, offset=queries.start), part, want.cell)
            assert counted is not None
            # Two stretches may share a row of cells.
            first = queries.start // want.cell - spec.offset // want.cell
            empty.rows[:, :, first : first + counted.rows.shape[2]] += counted.rows
        return empty

    def _joined(self, picture: Map | None) -> Map | None:
        """The map with what every process added."""
        if picture is None:
            return None
        rows = picture.rows
        # Where each process has all queries, each has counted them.
        if not self.plan.whole_queries:
            rows = self.links.total(rows)
        return replace(
            picture, total=self.links.total(picture.total), peak=self.links.largest(picture.peak), rows=rows
        )

    def _add(self, block: Block, sums: Sums, picture: Map | None, by_offset: Tensor | None) -> None:
        """Add a block's cells and diagonals to those of the sequence."""
        if by_offset is not None and sums.by_offset is not None:
            # Diagonals are counted from the last key of the whole sequence.
            last = self.keys.tokens - block.keys.stop
            offsets.place(by_offset, sums.by_offset, block.queries.start - block.offset, last)
        if picture is None or sums.map is None:
            return
        row = block.queries.start // picture.cell - picture.offset // picture.cell
        column, (height, width) = block.by // picture.cell, sums.map.total.shape[2:]
        cells = (..., slice(row, row + height), slice(column, column + width))
        picture.total[cells] += sums.map.total
        peak = picture.peak[cells]
        torch.maximum(peak, sums.map.peak, out=peak)

    @torch.no_grad()
    def vjp(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        spec: Spec,
        want: Wanted,
        grads: State,
        normalizer: Tensor,
        needed: Sequence[bool],
    ) -> tuple[Tensor | None, ...]:
        """Gradients of this process's query, key and value, and its part of the bias's tensor's."""
        inputs = (query, key, value, spec.parameter)
        exact = statistics_dtype(query.dtype)
        query_sum, key_sum, value_sum, bias_sum = gradient_sums(inputs, needed, exact)
        # Gradients of keys and values travel with them, and come home when they have been everywhere.
        travelers = [t for t in (key_sum, value_sum) if t is not None]

        def visit(stretches: tuple[range, ...], tensors: list[Tensor], totals: list[Tensor]) -> None:
            for _, block, rows, columns in self._blocks(stretches, spec, want):
                values = None
                if value is not None:
                    values = tensors[1][:, :, columns]
                local = {name: t[:, :, rows] for name, t in vars(grads).items() if t is not None}
                results = block.vjp(
                    self.engine,
                    query[:, :, rows],
                    tensors[0][:, :, columns],
                    values,
                    State(**{"l": None, **local}),
                    normalizer[:, :, rows],
                    needed,
                )
                query_part, *parts, bias_part = results
                if query_sum is not None and query_part is not None:
                    query_sum[:, :, rows] += query_part
                for total, part in zip(totals, (p for p in parts if p is not None), strict=True):
                    total[:, :, columns] += part
                if bias_sum is not None and bias_part is not None:
                    bias_sum[block.bias_index] += bias_part

        tensors = [key]
        if value is not None:
            tensors.append(value)
        home = iter(self.plan.bring(self.links, Keys(self.keys, tensors, travelers), visit))
        if query_sum is not None:
            query_sum = self.plan.add(self.links, query_sum)
        if bias_sum is not None:
            bias_sum = self.plan.add(self.links, bias_sum)
        sums = [query_sum, key_sum, value_sum, bias_sum]
        for i in (1, 2):
            if sums[i] is not None:
                sums[i] = next(home)
        return in_input_types(sums, inputs)

    def _stretches(self) -> list[tuple[slice, range]]:
        """This process's stretches of queries: where they lie in its tensors, and their positions."""
        return _located(self.queries)

    def blocks(self, spec: Spec, want: Wanted) -> Iterator[Block]:
        """All blocks of this process's queries, whichever process their keys are on; also those that are empty."""
        for rows, queries in self._stretches():
            for keys in (stretch for stretches in self.keys.stretches for stretch in stretches):
                yield Block(spec, want, queries, keys, rows.start, self.first)

    def _blocks(
        self, stretches: tuple[range, ...], spec: Spec, want: Wanted
    ) -> Iterator[tuple[int, Block, slice, slice]]:
        """The blocks of this process's queries and keys at these stretches: which stretch, block, queries, keys."""
        for number, (rows, queries) in enumerate(self._stretches()):
            for columns, keys in _located(stretches):
                block = Block(spec, want, queries, keys, rows.start, self.first)
                if not block.empty:
                    yield number, block, rows, columns

    def _blank(self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
        """The states of no keys, in the engine's types."""
        none = None
        if value is not None:
            none = value[:, :, :0]
        # Without keys no mask and no bias has anything to say.
        bare = Spec(spec.scale)
        state = self.engine.rows(query.detach(), key[:, :, :0], none, bare, replace(want, columns=()))
        if want.columns:
            state = replace(state, c=state.l.new_zeros((*state.l.shape, len(want.columns))))
        return identity(state)


def _located(stretches: Sequence[range]) -> list[tuple[slice, range]]:
    """Stretches with where they lie in a process's tensors."""
    parts, at = [], 0
    for stretch in stretches:
        parts.append((slice(at, at + len(stretch)), stretch))
        at += len(stretch)
    return parts


def _concatenated(states: Sequence[State]) -> State:
    """States of rows one after the other."""
    if len(states) == 1:
        return states[0]
    sums: dict[str, Any] = {}
    for name in SUMS:
        if getattr(states[0], name) is not None:
            sums[name] = torch.cat([getattr(state, name) for state in states], 2)
    return State(**sums)


class _Rows(torch.autograd.Function):
    """The first fold with its gradient, for which every process must ask."""

    @staticmethod
    def forward(ctx, query, key, value, parameter, spec, want, runner):  # type: ignore[no-untyped-def]
        state = runner.fold(query, key, value, spec, want)
        ctx.spec, ctx.want, ctx.runner = spec, want, runner
        ctx.save_for_backward(query, key, value, parameter, state.m, state.l)
        # Gradients that no one needs stay None, and cost nothing.
        ctx.set_materialize_grads(False)
        # They do not change when scores move a little.
        constants = [getattr(state, name) for name in CONSTANT]
        ctx.mark_non_differentiable(*(t for t in constants if t is not None))
        return tuple(getattr(state, name) for name in SUMS)

    @staticmethod
    @once_differentiable
    def backward(ctx, _m, l, u, r, o, c, *_):  # type: ignore[no-untyped-def]
        query, key, value, _, m, normalizer = ctx.saved_tensors
        grads = State(m=m, **dict(zip(GRADED, (l, u, r, o, c), strict=True)))
        needed = tuple(ctx.needs_input_grad[:4])
        results = ctx.runner.vjp(query, key, value, ctx.spec, ctx.want, grads, normalizer, needed)
        return *results, None, None, None
