"""The table of statistics: what each one means, what it needs from an engine, how it is read from a state.

Knows the state and the columns; it does not know how an engine folds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard import columns
from regard.columns import Column
from regard.errors import ArgumentError
from regard.observation import close_to
from regard.state import State


@dataclass(frozen=True)
class Statistic:
    """One line of the table.

    Attributes:
        kind: "row" is one number per query, "column" one per key, "head" one per head.
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


_LINES = (
    Statistic("lse", "row", "ln Σ e^score", "nats", "−∞", "∞", -torch.inf,
              "Logarithm of the softmax's denominator: how strong the scores of this query are altogether."),
    Statistic("entropy", "row", "−Σ w ln w", "nats", "0", "ln n", 0.0,
              "How spread out the attention of a query is: 0 on a single token, ln n when equal on all n."),
    Statistic("max_weight", "row", "max w", "fraction", "0", "1", 0.0,
              "The largest share of attention that a single token gets from this query."),
    Statistic("argmax", "row", "argmax w", "key", "0", "keys − 1", -1,
              "Which token gets the largest share (the first one, if several are equal)."),
    Statistic("effective_keys", "row", "e^entropy", "keys", "1", "n", 0.0,
              "Over how many tokens the attention is spread, as if it were equal on each of them."),
    Statistic("sum_squares", "row", "Σ w²", "fraction", "1/n", "1", 0.0,
              "Chance that two tokens drawn by attention are the same one; 1 means a single token has it all."),
    Statistic("distance", "row", "Σ w |q − k| / Σ w", "tokens", "0", "keys − 1", 0.0,
              "How far away, on average, the attended tokens are.", ("distance",)),
    Statistic("position", "row", "Σ w k / Σ w", "position", "0", "keys − 1", 0.0,
              "Where the attended tokens stand in the text, on average.", ("position",)),
    Statistic("spread", "row", "√(Σ w k² / Σ w − position²)", "tokens", "0", "(keys − 1)/2", 0.0,
              "How widely the attended tokens are scattered around their average position.", ("position", "square")),
    Statistic("first", "row", "Σ w over the first keys", "fraction", "0", "1", 0.0,
              "Share that goes to the very first token: heads with nothing to do often rest there.", ("first",)),
    Statistic("self_mass", "row", "w at k = q", "fraction", "0", "1", 0.0,
              "Share that a token gives to itself.", ("self_mass",)),
    Statistic("previous", "row", "w at k = q − 1", "fraction", "0", "1", 0.0,
              "Share that goes to the token just before.", ("previous",)),
    Statistic("local", "row", "Σ w over |q − k| ≤ r", "fraction", "0", "1", 0.0,
              "Share that stays within r tokens of the query.", ("local",)),
    Statistic("sink", "row", "w of the learned sink", "fraction", "0", "1", 0.0,
              "Share swallowed by a learned sink, which is no token at all."),
    Statistic("allowed", "row", "number of allowed keys", "keys", "0", "keys", 0,
              "How many tokens the query was free to attend."),
    Statistic("received", "column", "Σ over queries of w", "queries", "0", "queries", 0.0,
              "How much attention a token gets from all queries together."),
    Statistic("received_max", "column", "max over queries of w", "fraction", "0", "1", 0.0,
              "The largest share that any query gives to this token."),
)  # fmt: skip

TABLE: dict[str, Statistic] = {line.name: line for line in _LINES}

_SHARES = (
    Statistic("entropy_fraction", "head", "mean of entropy / ln n", "fraction", "0", "1", 0.0,
              "Entropy as a part of the most it could be: 0 on a single token, 1 when equal on all that are allowed."),
    Statistic("received_share", "head", "max received / Σ received", "fraction", "0", "1", 0.0,
              "The largest part of all attention that one token receives."),
)  # fmt: skip

SHARES: dict[str, Statistic] = {line.name: line for line in _SHARES}
"""What only a whole head has: columns of `record.heads` beside the means of the row statistics."""


@dataclass(frozen=True)
class Choice:
    """A statistic with a parameter: made by `first`, `local` and `group`."""

    name: str
    column: Column
    parameter: int | None = None


def first(count: int = 1) -> Choice:
    """Mass on the first `count` keys."""
    if count < 1:
        raise ArgumentError(f"first needs a count of at least 1, got {count}")
    return Choice("first", columns.first(count), count)


def local(radius: int = 8) -> Choice:
    """Mass within `radius` tokens of the query, either way."""
    if radius < 0:
        raise ArgumentError(f"local needs a radius of at least 0, got {radius}")
    return Choice("local", columns.band("local", -radius, radius), radius)


def group(name: str, keys: Tensor | Iterable[int], size: int | None = None) -> Choice:
    """Mass on named keys: the tokens of a segment, a part of speech, special tokens.

    Args:
        name: how the group is called in `Observation.groups`.
        keys: boolean, `(keys,)` or `(batch, keys)`; or positions, with `size` the number of keys.

    Raises:
        ArgumentError: positions without `size`, or outside it.
    """
    members = keys if isinstance(keys, Tensor) else torch.tensor(list(keys))
    if members.dtype != torch.bool:
        if size is None:
            raise ArgumentError(
                "group needs a boolean tensor over the keys, or positions with size=number of keys"
            )
        outside = [place for place in members.flatten().tolist() if place not in range(size)]
        if outside:
            raise ArgumentError(
                f"positions of group {name!r} must be whole, from 0 to {size - 1}, got {outside[0]}"
            )
        members = torch.zeros(size, dtype=torch.bool).index_fill(0, members.flatten().long(), True)
    return Choice(f"group:{name}", columns.group(name, members))


_DEFAULTS = {
    "first": first(),
    "local": local(),
    "self_mass": Choice("self_mass", columns.band("self_mass", 0, 0)),
    "previous": Choice("previous", columns.band("previous", -1, -1)),
}
_PLAIN = {column.name: column for column in (columns.POSITION, columns.SQUARE, columns.DISTANCE)}


@dataclass(frozen=True)
class Wanted:
    """What an engine is asked for: the output of the table's names, spelled out for the folds.

    Attributes:
        output: Σ w · value.
        entropy, squares: the sums u and r of the state.
        count: how many keys each query may attend.
        columns: linear statistics, in the order of the state's last axis.
        top: how many of the largest scores to keep with their keys.
        received, received_max, cell: column statistics; tokens per cell of the map, 0 for none.
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
    dropout: float = 0.0
    seed: int = 0
    names: frozenset[str] = field(default_factory=frozenset)
    parameters: dict[str, int | float | bool] = field(default_factory=dict)

    @property
    def second(self) -> bool:
        """Whether the second fold is needed."""
        return self.received or self.received_max or self.cell > 0


def wanted(
    statistics: str | Choice | Iterable[str | Choice] | None = None,
    *,
    top: int = 0,
    cell: int = 0,
    output: bool = True,
) -> Wanted:
    """What an engine must fold for these statistics.

    Args:
        statistics: None for all, "rows", "columns", or names and choices such as `local(16)`.

    Raises:
        ArgumentError: a name that is not in the table, or a negative `top`.
    """
    if top < 0:
        raise ArgumentError(f"top must be at least 0, got {top}")
    if statistics is None:
        chosen: list[str | Choice] = list(TABLE)
    elif statistics in ("rows", "columns"):
        chosen = [name for name, line in TABLE.items() if line.kind == str(statistics)[:-1]]
    elif isinstance(statistics, str | Choice):
        chosen = [statistics]
    else:
        chosen = list(statistics)
    choices = dict(_DEFAULTS)
    names = set()
    for item in chosen:
        if isinstance(item, Choice):
            choices[item.name] = item
        elif item not in TABLE:
            raise ArgumentError(f"unknown statistic {item!r}; {close_to(item, TABLE)}")
        names.add(item.name if isinstance(item, Choice) else item)
    parts: dict[str, Column] = {}
    for name in sorted(names):
        for part in TABLE[name].columns if name in TABLE else (name,):
            parts[part] = _PLAIN.get(part) or choices[name].column
    return Wanted(
        output=output,
        entropy=bool(names & {"entropy", "effective_keys"}),
        squares="sum_squares" in names,
        count=True,
        columns=tuple(parts.values()),
        top=max(top, int(bool(names & {"argmax", "max_weight"}))),
        received="received" in names,
        received_max="received_max" in names,
        cell=cell,
        names=frozenset(names),
        parameters={n: c.parameter for n, c in choices.items() if n in names and c.parameter is not None},
    )


def read(state: State, want: Wanted, keys_only: State) -> dict[str, Tensor]:
    """Row statistics from a state, by name; groups by `group:name`.

    Args:
        state: of the keys and the learned sink, if there is one.
        want: what was asked for.
        keys_only: of the keys alone: positions are means over tokens, masses are shares of everything.
    """
    total, lse = state.filled, state.lse
    values: dict[str, Tensor] = {"lse": lse}
    if state.u is not None:
        values["entropy"] = state.entropy
        values["effective_keys"] = torch.where(state.l == 0, 0.0, state.entropy.exp())
    if state.r is not None:
        values["sum_squares"] = state.r / total.square()
    if state.top_scores is not None and state.top_keys is not None:
        values["max_weight"] = weight(keys_only.m, lse).detach()
        values["argmax"] = state.top_keys[..., 0]
    if state.c is not None:
        assert keys_only.c is not None
        shares = means = state.c / total[..., None]
        if keys_only is not state:
            means = keys_only.c / keys_only.filled[..., None]
        for i, column in enumerate(want.columns):
            values[column.name] = (means if column.name in _PLAIN else shares)[..., i]
    if "square" in values:
        variance = (values["square"] - values["position"].square()).clamp(min=0)
        values["spread"] = torch.where(variance > 0, variance, 1.0).sqrt() * (variance > 0)
    if "sink" in want.names:
        without = torch.zeros_like(lse)
        values["sink"] = (
            without if keys_only is state else torch.where(state.l == 0, 0.0, 1 - (keys_only.lse - lse).exp())
        )
    if state.count is not None:
        values["allowed"] = state.count
    return {name: tensor for name, tensor in values.items() if name in want.names}


def weight(score: Tensor, lse: Tensor) -> Tensor:
    """e^(score − lse), and 0 in an empty row."""
    return torch.where(lse == -torch.inf, torch.zeros_like(lse), (score - lse).exp())
