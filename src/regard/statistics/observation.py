"""What one look at attention yields: statistics of rows and columns, the pooled map, the strongest keys.

Knows their shapes and how they merge; it does not know how they were computed, nor of which model.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard import html
from regard.checks.transforms import tracing
from regard.errors import ArgumentError, RecordError, ShapeError
from regard.statistics import display

ROWS = (
    "lse",
    "entropy",
    "max_weight",
    "min_weight",
    "argmax",
    "effective_keys",
    "sum_squares",
    "distance",
    "position",
    "spread",
    "first",
    "self_mass",
    "previous",
    "local",
    "sink",
    "allowed",
)
COLUMNS = ("received", "received_max")
OFFSETS = ("by_offset",)


def cells(start: int, stop: int, cell: int) -> int:
    """Cells of the absolute grid that the positions `start ≤ p < stop` touch."""
    if stop <= start:
        return 0
    return (stop - 1) // cell - start // cell + 1


def close_to(name: object, known: Iterable[str]) -> str:
    """The end of an error message: names close to `name`, else all of them."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known: {', '.join(known) or 'none'}"


def check_index(name: str, value: int, size: int) -> None:
    """Raise ArgumentError unless `value` is an index into an axis of `size`; negative counts from the end."""
    if isinstance(value, bool) or not isinstance(value, int) or not -size <= value < size:
        raise ArgumentError(f"{name} must be an integer from 0 to {size - 1}, got {value!r}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Map:
    """The weights pooled to square cells of `cell` × `cell` tokens, aligned to absolute positions.

    Row `i` of the grid holds the queries at positions `(offset // cell + i) · cell` and the `cell − 1` after
    it; column `j` holds the keys from `j · cell` on. Maps of disjoint queries merge, whatever their cells: a
    monoid whose identity is a map of no queries and no keys.

    Attributes:
        total: `(batch, heads, grid_q, grid_k)`, sum of the weights in each cell.
        peak: the same shape, largest weight in each cell.
        rows: `(batch, heads or 1, grid_q)`, queries of each row of cells that may attend something.
        cell: tokens per side of a cell, a power of two.
        queries: number of queries.
        keys: number of keys.
        offset: position of query 0.

    Raises:
        ShapeError: the tensors do not fit the grid that `cell`, `queries`, `keys` and `offset` make.
    """

    total: Tensor = field(repr=False)
    peak: Tensor = field(repr=False)
    rows: Tensor = field(repr=False)
    cell: int
    queries: int
    keys: int
    offset: int

    def __post_init__(self) -> None:
        if self.cell < 1 or self.cell & (self.cell - 1):
            raise ShapeError(f"cell must be a power of two, got {self.cell}")
        grid = (cells(self.offset, self.offset + self.queries, self.cell), cells(0, self.keys, self.cell))
        shape, peak = tuple(self.total.shape), tuple(self.peak.shape)
        if len(shape) != 4 or shape[2:] != grid or peak != shape:
            raise ShapeError(
                f"total and peak must be (batch, heads, {grid[0]}, {grid[1]}): {self.queries} queries from "
                f"position {self.offset}, {self.keys} keys, cells of {self.cell}; got {shape} and {peak}"
            )
        if tuple(self.rows.shape) not in ((shape[0], 1, grid[0]), (shape[0], shape[1], grid[0])):
            raise ShapeError(
                f"rows must be ({shape[0]}, {shape[1]} or 1, {grid[0]}), got {tuple(self.rows.shape)}"
            )

    @property
    def widths(self) -> Tensor:
        """`(grid_k,)`: keys in each column of cells; the last one may be narrower."""
        starts = torch.arange(0, self.keys, self.cell, device=self.total.device)
        return (self.keys - starts).clamp(max=self.cell)

    @property
    def mean(self) -> Tensor:
        """`(batch, heads, grid_q, grid_k)`: mean weight of each cell over its valid queries, or 0.

        `(mean · widths).sum(-1)` is the mean mass of the row's queries: 1, less what a learned sink takes.
        """
        return self._mean(self.total, self.rows)

    def __call__(self, head: int, *, batch: int = 0, pool: str = "mean") -> Tensor:
        """The picture of one head.

        Args:
            head: which head.
            batch: which row of the batch.
            pool: `"mean"` weight of each cell, or `"max"`, the largest.

        Returns:
            `(grid_q, grid_k)`.
        """
        check_index("head", head, self.total.shape[1])
        check_index("batch", batch, self.total.shape[0])
        if pool not in ("mean", "max"):
            raise ArgumentError(f"pool must be 'mean' or 'max', got {pool!r}")
        if pool == "max":
            return self.peak[batch, head]
        # Where all heads share a mask, one row of counts stands for all.
        row = 0
        if self.rows.shape[1] > 1:
            row = head
        return self._mean(self.total[batch, head], self.rows[batch, row])

    def coarsen(self, cell: int) -> Map:
        """The same map with larger cells: totals and rows are added, peaks pooled by max.

        Raises:
            ArgumentError: `cell` is no power of two or smaller than the map's own.
        """
        if cell < self.cell or cell & (cell - 1):
            raise ArgumentError(f"cell must be a power of two of at least {self.cell}, got {cell}")
        factor = cell // self.cell
        if factor == 1:
            return self
        grid_q, grid_k = cells(self.offset, self.offset + self.queries, cell), cells(0, self.keys, cell)
        # A large cell may start earlier.
        before = 0
        if self.queries:
            before = self.offset // self.cell % factor
        after = grid_q * factor - before - self.total.shape[2]
        margins = (0, grid_k * factor - self.total.shape[3], before, after)
        total, peak = pad(self.total, margins), pad(self.peak, margins)
        for axis, split in ((3, (grid_k, factor)), (2, (grid_q, factor))):
            total = total.unflatten(axis, split).sum(axis + 1)
            peak = peak.unflatten(axis, split).amax(axis + 1)
        rows = pad(self.rows, margins[2:]).unflatten(2, (grid_q, factor)).sum(3)
        return replace(self, total=total, peak=peak, rows=rows, cell=cell)

    def first_heads(self, heads: int) -> Map:
        """The map of the first `heads` heads in the first row of the batch."""
        total, peak, rows = (tensor[:1, :heads] for tensor in (self.total, self.peak, self.rows))
        return replace(self, total=total, peak=peak, rows=rows)

    def merge(self, *others: Map) -> Map:
        """The map of the queries of all, which must be disjoint; the finer ones are coarsened first.

        Raises:
            ShapeError: the batch sizes or the numbers of heads differ.
        """
        for other in others:
            if self.total.shape[:2] != other.total.shape[:2]:
                raise ShapeError(
                    f"maps that merge must agree in batch and heads, got {tuple(self.total.shape[:2])} and "
                    f"{tuple(other.total.shape[:2])}"
                )
        cell = max(m.cell for m in (self, *others))
        maps = [m.coarsen(cell) for m in (self, *others)]
        ranges = [(m.offset, m.offset + m.queries) for m in maps if m.queries] or [(0, 0)]
        offset, stop = min(start for start, _ in ranges), max(stop for _, stop in ranges)
        keys, heads = max(m.keys for m in maps), max(m.rows.shape[1] for m in maps)
        grid = (cells(offset, stop, cell), cells(0, keys, cell))
        first = maps[0]
        total = first.total.new_zeros((*first.total.shape[:2], *grid))
        peak = torch.full_like(total, -torch.inf)
        rows = first.rows.new_zeros((first.rows.shape[0], heads, grid[0]))
        covered = torch.zeros(grid, dtype=torch.int64, device=total.device)
        for m in maps:
            # A map of no queries has no rows, and its offset may lie anywhere.
            top = 0
            if m.queries:
                top = m.offset // cell - offset // cell
            lines, columns = slice(top, top + m.total.shape[2]), slice(m.total.shape[3])
            total[:, :, lines, columns] += m.total
            peak[:, :, lines, columns] = torch.maximum(peak[:, :, lines, columns], m.peak)
            rows[:, :, lines] += m.rows
            covered[lines, columns] += 1
        # 0 where one of them saw nothing.
        peak = torch.where(covered < len(maps), peak.clamp(min=0), peak)
        return Map(
            total=total, peak=peak, rows=rows, cell=cell, queries=stop - offset, keys=keys, offset=offset
        )

    def at(self, offset: int) -> Map:
        """The same map with its first query at position `offset`.

        Raises:
            ArgumentError: the queries would be split among cells in another way.
        """
        inside, moved = self.offset % self.cell, offset % self.cell
        one_cell = max(inside, moved) + self.queries <= self.cell
        if inside != moved and not one_cell:
            raise ArgumentError(
                f"a map with cells of {self.cell} can move by a multiple of {self.cell} only, "
                f"got {self.offset} to {offset}"
            )
        return replace(self, offset=offset)

    def _mean(self, total: Tensor, rows: Tensor) -> Tensor:
        # A row of cells without a valid query has a total of 0, which is left as its mean.
        return total / (rows.clamp(min=1).unsqueeze(-1) * self.widths)


@dataclass(frozen=True, eq=False)
class Top:
    """The strongest keys of each query, strongest first.

    Attributes:
        weights: `(batch, heads, queries, k)`; 0 where the query may attend fewer than `k` keys.
        keys: the same shape, int64, positions of these keys; −1 where there is none.
    """

    weights: Tensor
    keys: Tensor

    def join(self, later: Top) -> Top:
        """The strongest keys of these queries, then of the `later` ones."""
        k = max(self.keys.shape[3], later.keys.shape[3])
        weights = [pad(top.weights, (0, k - top.weights.shape[3])) for top in (self, later)]
        keys = [pad(top.keys, (0, k - top.keys.shape[3]), value=-1) for top in (self, later)]
        return Top(torch.cat(weights, 2), torch.cat(keys, 2))


@dataclass(frozen=True, eq=False, kw_only=True)
class Observation:
    """What was asked of one attention call; what was not asked for is None.

    A query that may attend no key, or whose every score is −inf, has lse −inf, argmax −1 and 0 in every other but
    `allowed`; no mean counts it. One with a score that is NaN or +inf is broken: argmax −1 and NaN in every other
    but `allowed`.

    Attributes:
        output: `(batch, heads, queries, value_dim)`.
        lse, …, allowed: row statistics, `(batch, heads, queries)`; formulas in `regard.statistics.TABLE`.
        received, received_max: column statistics, `(batch, heads, keys)`.
        by_offset: `(batch, heads, queries + keys − 1)`, weights summed along q − k = d, from the smallest d on.
        groups: mass on each named group of keys, `(batch, heads, queries)`.
        map: the weights pooled to a small grid.
        top: the strongest keys of each query.
        attends: `(batch, heads, queries)`, queries that attend something; None where `lse` is there to say it.
        engine: the engine that ran.
        parameters: `first` (a count), `local` (a radius), `sink_logit` (True where a learned sink took mass).
    """

    output: Tensor | None = None
    lse: Tensor | None = None
    entropy: Tensor | None = None
    max_weight: Tensor | None = None
    min_weight: Tensor | None = None
    argmax: Tensor | None = None
    effective_keys: Tensor | None = None
    sum_squares: Tensor | None = None
    distance: Tensor | None = None
    position: Tensor | None = None
    spread: Tensor | None = None
    first: Tensor | None = None
    self_mass: Tensor | None = None
    previous: Tensor | None = None
    local: Tensor | None = None
    sink: Tensor | None = None
    allowed: Tensor | None = None
    received: Tensor | None = None
    received_max: Tensor | None = None
    by_offset: Tensor | None = None
    groups: dict[str, Tensor] = field(default_factory=dict)
    map: Map | None = None
    top: Top | None = None
    attends: Tensor | None = None
    engine: str = ""
    parameters: dict[str, int | float | bool] = field(default_factory=dict)

    def __repr__(self) -> str:
        names = ("output", *COLUMNS, *OFFSETS, "map", "top")
        present = self.row_names() + [name for name in names if getattr(self, name) is not None]
        return f"{type(self).__name__}({', '.join(present)}; engine {self.engine!r})"

    def _repr_html_(self) -> str:
        return html.card(html.heading("Observation", "", self._facts()), *self._sections())

    def _facts(self) -> list[str]:
        """Its sizes and its engine, as far as they are known."""
        facts = []
        rows = next((t for t in (*map(self._tensor, ROWS), self.output) if t is not None), None)
        if rows is not None:
            facts = [
                f"{name} {html.number(size)}"
                for name, size in zip(("batch", "heads", "queries"), rows.shape, strict=False)
            ]
        if self.received is not None:
            facts.append(f"keys {html.number(self.received.shape[-1])}")
        if self.engine:
            facts.append(f"engine {self.engine}")
        return facts

    def _sections(self) -> list[str]:
        """The pictures of the heads and the table of the first statistics, in HTML, where they are there."""
        sections = []
        if self.map is not None:
            sections.append(display.maps(self.map))
        means = {name: self.head_means(name) for name in display.UNITS if self._tensor(name) is not None}
        sections.append(display.statistics({name: mean for name, mean in means.items() if mean is not None}))
        return sections

    def head_means(self, name: str) -> Tensor | None:
        """`(heads,)`, float64, on the CPU: mean of one row statistic over the valid queries of the whole batch.

        None where it was not kept, nor which queries are valid, or where its tensor holds no numbers.
        """
        values = self._tensor(name)
        known = any(tensor is not None for tensor in (self.lse, self.attends, self.allowed))
        if values is None or not known or tracing(values):
            return None
        values, valid = torch.broadcast_tensors(values.detach(), self.valid())
        total = torch.where(valid, values, 0).sum((0, 2), dtype=torch.float64)
        return (total / valid.sum((0, 2)).clamp(min=1)).cpu()

    def _tensor(self, name: str) -> Tensor | None:
        tensor: Tensor | None = getattr(self, name)
        return tensor

    def row_names(self) -> list[str]:
        """Names of the row statistics and groups that are there."""
        return [name for name in ROWS if getattr(self, name) is not None] + list(self.groups)

    def rows(self, name: str) -> Tensor:
        """One row statistic, or the mass on one named group of keys: `(batch, heads, queries)`.

        Raises:
            ArgumentError: no row statistic has this name.
            RecordError: it was not kept.
        """
        # A group may be called like a statistic, which then wins; it stays in `groups`.
        if name in self.groups and name not in ROWS:
            return self.groups[name]
        if name in COLUMNS:
            raise ArgumentError(f"{name!r} is a statistic of columns, one number per key: read .{name}")
        if name not in ROWS:
            raise ArgumentError(f"no row statistic {name!r}; {close_to(name, (*ROWS, *self.groups))}")
        tensor = getattr(self, name)
        if tensor is None:
            raise RecordError(
                f"{name!r} was not kept; kept: {', '.join(self.row_names()) or 'no row statistic'}"
            )
        return tensor

    def valid(self) -> Tensor:
        """`(batch, heads, queries)`, bool: queries that attend something, as some score of theirs is not −inf.

        Raises:
            RecordError: neither `allowed` nor `lse` was kept.
        """
        # lse first: a row of scores that are all −inf attends nothing, though its mask allows keys.
        if self.lse is not None:
            return ~torch.isneginf(self.lse)
        if self.attends is not None:
            return self.attends
        if self.allowed is not None:
            return self.allowed > 0
        raise RecordError(
            "which queries may attend something is told by 'allowed' or 'lse', and neither was kept; "
            f"kept: {', '.join(self.row_names()) or 'no row statistic'}"
        )

    def mean(self, name: str) -> Tensor:
        """`(batch, heads)`: mean of one row statistic over the valid queries; 0 where there is none."""
        values, valid = self.rows(name), self.valid()
        return torch.where(valid, values, 0).sum(-1) / valid.sum(-1).clamp(min=1)
