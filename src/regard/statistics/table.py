"""The table of statistics: what each one means, what it needs from an engine.

Knows the columns of the state; how a statistic is read from it is said in `formulas`, and in `reference` for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from regard.checks.arguments import listed, text, whole
from regard.checks.transforms import concrete
from regard.errors import ArgumentError, ShapeError
from regard.masks.arguments import integers
from regard.statistics import linear as columns
from regard.statistics.linear import Column
from regard.statistics.observation import close_to


@dataclass(frozen=True)
class Statistic:
    """One line of the table.

    Attributes:
        kind: "row" is one number per query, "column" one per key, "offset" one per distance of a query from a key,
            "head" one per head.
        formula: in terms of the weights w, the query's position q and the key's position k.
        low, high: its range, as formulas; n is the number of keys that the query may attend.
        empty: its value where a query may attend nothing.
        meaning: one plain sentence for a newcomer.
        columns: the linear columns it is read from.
    """

    name: str
    kind: str
    formula: str
    unit: str
    low: str
    high: str
    empty: float
    meaning: str
    columns: tuple[str, ...] = ()

    def explained(self, parameters: Mapping[str, int | float | bool]) -> str:
        """The meaning, with the parameter that an observation was made with."""
        if self.name == "local" and "local" in parameters:
            return f"{self.meaning} Here r = {parameters['local']}."
        if self.name == "first" and parameters.get("first", 1) > 1:
            return f"{self.meaning} Here: to the first {parameters['first']}."
        return self.meaning


# One plain sentence each, apart from the formulas, which are then a table that can be read down.
_MEANINGS = {
    "lse": "Logarithm of the softmax's denominator: how strong the scores of this query are altogether.",
    "entropy": "How spread out the attention of a query is: 0 on a single token, ln n when equal on all n.",
    "max_weight": "The largest share of attention that a single token gets from this query.",
    "min_weight": "The smallest share of attention that a token gets of those that this query was free to attend.",
    "argmax": "Which token gets the largest share (the first one, if several are equal).",
    "effective_keys": "Over how many tokens the attention is spread, as if it were equal on each of them.",
    "sum_squares": "Chance that two tokens drawn by attention are the same one; 1 means a single token has it all.",
    "distance": "How far away, on average, the attended tokens are.",
    "position": "Where the attended tokens stand in the text, on average.",
    "spread": "How widely the attended tokens are scattered around their average position.",
    "first": "Share that goes to the very first token: heads with nothing to do often rest there.",
    "self_mass": "Share that a token gives to itself.",
    "previous": "Share that goes to the token just before.",
    "local": "Share that stays within r tokens of the query.",
    "sink": "Share swallowed by a learned sink, which is no token at all.",
    "allowed": "How many tokens the query was free to attend.",
    "received": "How much attention a token gets from all queries together.",
    "received_max": "The largest share that any query gives to this token.",
    "by_offset": "How much attention all queries together give to the token that stands d places before them.",
    "entropy_fraction": "Entropy as a part of the most it could be: 0 on a single token, 1 when equal on all that are "
    "allowed.",
    "largest_score": "The largest of all scores: where it grows without bound, the softmax passes no gradient.",
    "nonfinite": "Share of the queries whose statistics are NaN or infinite.",
    "received_share": "The largest part of all attention that one token receives.",
}


def _line(
    name: str,
    kind: str,
    formula: str,
    unit: str,
    low: str,
    high: str,
    *,
    empty: float = 0.0,
    columns: tuple[str, ...] = (),
) -> Statistic:
    return Statistic(name, kind, formula, unit, low, high, empty, _MEANINGS[name], columns)


_LINES = (
    _line("lse", "row", "ln Σ e^score", "nats", "−∞", "∞", empty=-torch.inf),
    _line("entropy", "row", "−Σ w ln w", "nats", "0", "ln n"),
    _line("max_weight", "row", "max w", "fraction", "0", "1"),
    _line("min_weight", "row", "min w over the allowed keys", "fraction", "0", "1/n"),
    _line("argmax", "row", "argmax w", "key", "0", "keys − 1", empty=-1),
    _line("effective_keys", "row", "e^entropy", "keys", "1", "n"),
    _line("sum_squares", "row", "Σ w²", "fraction", "1/n", "1"),
    _line("distance", "row", "Σ w |q − k| / Σ w", "tokens", "0", "keys − 1", columns=("distance",)),
    _line("position", "row", "Σ w k / Σ w", "position", "0", "keys − 1", columns=("position",)),
    _line(
        "spread",
        "row",
        "√(Σ w k² / Σ w − position²)",
        "tokens",
        "0",
        "(keys − 1)/2",
        columns=("position", "square"),
    ),
    _line("first", "row", "Σ w over the first keys", "fraction", "0", "1", columns=("first",)),
    _line("self_mass", "row", "w at k = q", "fraction", "0", "1", columns=("self_mass",)),
    _line("previous", "row", "w at k = q − 1", "fraction", "0", "1", columns=("previous",)),
    _line("local", "row", "Σ w over |q − k| ≤ r", "fraction", "0", "1", columns=("local",)),
    _line("sink", "row", "w of the learned sink", "fraction", "0", "1"),
    _line("allowed", "row", "number of allowed keys", "keys", "0", "keys", empty=0),
    _line("received", "column", "Σ over queries of w", "queries", "0", "queries"),
    _line("received_max", "column", "max over queries of w", "fraction", "0", "1"),
    _line("by_offset", "offset", "Σ over queries of w at k = q − d", "queries", "0", "queries"),
)

TABLE: dict[str, Statistic] = {line.name: line for line in _LINES}

PLACED = ("distance", "self_mass", "previous", "local")
"""What needs the place of a query among the keys; None where that is not known."""

_SHARES = (
    _line("entropy_fraction", "head", "mean of entropy / ln n", "fraction", "0", "1"),
    _line("received_share", "head", "max received / Σ received", "fraction", "0", "1"),
)

SHARES: dict[str, Statistic] = {line.name: line for line in _SHARES}
"""What only a whole head has: columns of `record.heads` beside the means of the row statistics."""


_MONITORED = (
    _line("largest_score", "head", "max score", "nats", "−∞", "∞"),
    _line("nonfinite", "head", "share of queries with NaN or ∞", "fraction", "0", "1"),
)

MONITORED: dict[str, Statistic] = {line.name: line for line in _MONITORED}
"""What only a monitored head has, beside its shares: the largest score, and whether its numbers are numbers."""


@dataclass(frozen=True)
class Choice:
    """A statistic with a parameter: made by `first`, `local`, `group` and `matching`."""

    name: str
    column: Column
    parameter: int | None = None


def first(count: int = 1) -> Choice:
    """Mass on the first `count` keys.

    Example:
        >>> first(4).name, first(4).parameter
        ('first', 4)
    """
    count = whole("count", count, 1)
    return Choice("first", columns.first(count), count)


def local(radius: int = 8) -> Choice:
    """Mass within `radius` tokens of the query, either way.

    Example:
        >>> local(2).column.low, local(2).column.high
        (-2, 2)
    """
    radius = whole("radius", radius, 0)
    return Choice("local", columns.band("local", -radius, radius), radius)


def group(name: str, keys: Tensor | Iterable[int], size: int | None = None) -> Choice:
    """Mass on named keys: the tokens of a segment, a part of speech, special tokens.

    Args:
        name: how the group is called in `Observation.groups`.
        keys: boolean, `(keys,)` or `(batch, keys)`; or positions, with `size` the number of keys.

    Raises:
        ArgumentError: positions without `size`, or outside it.

    Example:
        >>> import regard as rg
        >>> query = key = torch.zeros(1, 1, 4, 8)
        >>> rg.observe(query, key, statistics=[group("name", [1, 2], size=4)]).groups["name"]
        tensor([[[0.5000, 0.5000, 0.5000, 0.5000]]])
    """
    name, members = text("name", name), _members(keys)
    if members.dtype != torch.bool:
        if size is None:
            raise ArgumentError(
                "group needs a boolean tensor over the keys, or positions with size=number of keys"
            )
        size, positions = whole("size", size, 0), integers(f"positions of group {name!r}", members)
        outside = [key for key in positions.flatten().tolist() if not 0 <= key < size]
        if outside:
            raise ArgumentError(
                f"positions of group {name!r} must be whole, from 0 to {size - 1}, got {outside[0]}"
            )
        members = torch.zeros(size, dtype=torch.bool).index_fill(0, positions.flatten().cpu(), True)
    return Choice(f"group:{name}", columns.group(name, members))


def matching(
    name: str,
    query_ids: Tensor | Sequence[int],
    key_ids: Tensor | Sequence[int],
    *,
    low: int | None = None,
    high: int | None = None,
) -> Choice:
    """Mass on the keys that have the query's own id: the same token, the token after it, the bracket that it closes.

    Ids go by absolute position: the query at position p, which is query p − offset of its call, has `query_ids[p]`, and
    key k has `key_ids[k]`. There may be more of them than a call has: those of a whole text serve every step of its
    generation. A query at a position below 0 matches nothing.

    Args:
        name: how the group is called in `Observation.groups`.
        query_ids: whole numbers, `(positions,)` or `(batch, positions)`; a negative one matches nothing.
        key_ids: the same for the keys.
        low: the least k − q in tokens; None for any. −1 as `high` leaves what stands before the query.
        high: the largest k − q.

    Raises:
        ArgumentError: ids that are no whole numbers, or `low` above `high`.
        ShapeError: ids with other than one or two axes; from `observe`, ids that do not fit the call. A watch raises
            WatchError then, which names the module.

    Example:
        >>> import regard as rg
        >>> tokens = torch.tensor([5, 6, 5, 7])
        >>> duplicate = matching("duplicate", tokens, tokens, high=-1)
        >>> query = key = torch.zeros(1, 1, 4, 8)
        >>> rg.observe(query, key, statistics=[duplicate]).groups["duplicate"]
        tensor([[[0.0000, 0.0000, 0.2500, 0.0000]]])
    """
    name = text("name", name)
    queries, keys = _ids("query_ids", query_ids), _ids("key_ids", key_ids)
    least, most = -columns.FAR, columns.FAR
    if low is not None:
        least = whole("low", low)
    if high is not None:
        most = whole("high", high)
    if least > most:
        raise ArgumentError(f"low must be at most high, got {low} and {high}")
    return Choice(f"group:{name}", columns.match(name, queries, keys, least, most))


def _ids(side: str, values: Tensor | Sequence[int]) -> Tensor:
    ids = integers(side, values)
    if ids.ndim not in (1, 2):
        raise ShapeError(f"{side} must have shape (positions,) or (batch, positions), got {tuple(ids.shape)}")
    return ids


def _members(keys: Tensor | Iterable[int]) -> Tensor:
    if isinstance(keys, Tensor):
        return concrete("keys", keys)
    keys = listed("keys", keys, lambda name, value: value)
    if keys and all(isinstance(key, bool) for key in keys):
        return torch.tensor(keys)
    return torch.tensor([whole("a key of the group", key) for key in keys], dtype=torch.int64)


_DEFAULTS = {
    "first": first(),
    "local": local(),
    "self_mass": Choice("self_mass", columns.band("self_mass", 0, 0)),
    "previous": Choice("previous", columns.band("previous", -1, -1)),
}
PLAIN = {column.name: column for column in (columns.POSITION, columns.SQUARE, columns.DISTANCE)}


@dataclass(frozen=True)
class Wanted:
    """What an engine is asked for: the output of the table's names, spelled out for the folds.

    Attributes:
        output: Σ w · value.
        entropy, squares: the sums u and r of the state.
        count: how many keys each query may attend.
        least: the smallest score among them.
        columns: linear statistics, in the order of the state's last axis.
        top: how many of the largest scores to keep with their keys.
        received, received_max, cell: column statistics; tokens per cell of the map, 0 for none.
        by_offset: sums of the weights along their diagonals.
        weighted: the second fold is asked for sums of the weights of weighted queries, which `Engine.weighted` gives.
        dropout, seed: probability of dropping a weight on its way to the output, and what decides which.
    """

    output: bool = True
    entropy: bool = False
    squares: bool = False
    count: bool = False
    columns: tuple[Column, ...] = ()
    top: int = 0
    received: bool = False
    received_max: bool = False
    cell: int = 0
    by_offset: bool = False
    weighted: bool = False
    dropout: float = 0.0
    seed: int = 0
    least: bool = False
    names: frozenset[str] = field(default_factory=frozenset)
    parameters: dict[str, int | float | bool] = field(default_factory=dict)

    @property
    def second(self) -> bool:
        """Whether the second fold is needed."""
        return self.received or self.received_max or self.by_offset or self.cell > 0


def wanted(
    statistics: str | Choice | Iterable[str | Choice] | None = None,
    *,
    top: int = 0,
    cell: int = 0,
    output: bool = True,
) -> Wanted:
    """What an engine must fold for these statistics.

    Args:
        statistics: None for all of rows and columns, "rows", "columns", or names and choices such as `local(16)`;
            what is of no row and no column, `by_offset`, by its name alone.

    Raises:
        ArgumentError: a name that is not in the table, or a negative `top`.
    """
    top = whole("top", top, 0)
    # A graph that is being made asks anew: it cannot look into a cache.
    if (statistics is None or isinstance(statistics, str)) and not torch.compiler.is_compiling():
        return _wanted_once(statistics, top, cell, output)
    return _wanted(statistics, top, cell, output)


def _wanted(
    statistics: str | Choice | Iterable[str | Choice] | None, top: int, cell: int, output: bool
) -> Wanted:
    if statistics is None:
        chosen: list[str | Choice] = [name for name, line in TABLE.items() if line.kind != "offset"]
    elif isinstance(statistics, str) and statistics in ("rows", "columns"):
        chosen = [name for name, line in TABLE.items() if line.kind == statistics[:-1]]
    elif isinstance(statistics, str | Choice):
        chosen = [statistics]
    else:
        chosen = listed("statistics", statistics, lambda _, item: item)
    choices = dict(_DEFAULTS)
    names = set()
    for item in chosen:
        if isinstance(item, Choice):
            choices[item.name] = item
            names.add(item.name)
        elif isinstance(item, str) and item in TABLE:
            names.add(item)
        else:
            raise ArgumentError(f"unknown statistic {item!r}; {close_to(item, TABLE)}")
    # Sorted, so that one wish gives one order of columns, whatever the order in which it was said.
    parts: dict[str, Column] = {}
    for name in sorted(names):
        # Only groups are in no table: each is a column of its own.
        columns_of: tuple[str, ...] = (name,)
        if name in TABLE:
            columns_of = TABLE[name].columns
        for part in columns_of:
            parts[part] = PLAIN.get(part) or choices[name].column
    return Wanted(
        output=output,
        entropy=bool(names & {"entropy", "effective_keys"}),
        squares="sum_squares" in names,
        count=True,
        least="min_weight" in names,
        columns=tuple(parts.values()),
        top=max(top, int(bool(names & {"argmax", "max_weight"}))),
        received="received" in names,
        received_max="received_max" in names,
        by_offset="by_offset" in names,
        cell=cell,
        names=frozenset(names),
        parameters={n: c.parameter for n, c in choices.items() if n in names and c.parameter is not None},
    )


_wanted_once = lru_cache(_wanted)
