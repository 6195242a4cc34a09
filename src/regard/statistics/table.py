"""The table of statistics: what each one means, what it needs from an engine, how it is read from a state.

Knows the state and the columns; it does not know how an engine folds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.checks.arguments import listed, text, whole
from regard.checks.transforms import concrete, tracing, transforming
from regard.errors import ArgumentError
from regard.masks.arguments import integers
from regard.statistics import linear as columns
from regard.statistics.linear import Column
from regard.statistics.observation import close_to
from regard.statistics.state import SUMS, State


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

PLACED = ("distance", "self_mass", "previous", "local")
"""What needs the place of a query among the keys; None where that is not known."""

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
    count = whole("count", count, 1)
    return Choice("first", columns.first(count), count)


def local(radius: int = 8) -> Choice:
    """Mass within `radius` tokens of the query, either way."""
    radius = whole("radius", radius, 0)
    return Choice("local", columns.band("local", -radius, radius), radius)


def group(name: str, keys: Tensor | Iterable[int], size: int | None = None) -> Choice:
    """Mass on named keys: the tokens of a segment, a part of speech, special tokens.

    Args:
        name: how the group is called in `Observation.groups`.
        keys: boolean, `(keys,)` or `(batch, keys)`; or positions, with `size` the number of keys.

    Raises:
        ArgumentError: positions without `size`, or outside it.
    """
    name, members = text("name", name), _members(keys)
    if members.dtype != torch.bool:
        if size is None:
            raise ArgumentError(
                "group needs a boolean tensor over the keys, or positions with size=number of keys"
            )
        size, places = whole("size", size, 0), integers(f"positions of group {name!r}", members)
        outside = [place for place in places.flatten().tolist() if not 0 <= place < size]
        if outside:
            raise ArgumentError(
                f"positions of group {name!r} must be whole, from 0 to {size - 1}, got {outside[0]}"
            )
        members = torch.zeros(size, dtype=torch.bool).index_fill(0, places.flatten().cpu(), True)
    return Choice(f"group:{name}", columns.group(name, members))


def _members(keys: Tensor | Iterable[int]) -> Tensor:
    if isinstance(keys, Tensor):
        return concrete("keys", keys)
    places = listed("keys", keys, lambda name, value: value)
    if places and all(isinstance(place, bool) for place in places):
        return torch.tensor(places)
    return torch.tensor([whole("a key of the group", place) for place in places], dtype=torch.int64)


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
    top = whole("top", top, 0)
    # A graph that is being made asks anew: it cannot look into a cache.
    if (statistics is None or isinstance(statistics, str)) and not torch.compiler.is_compiling():
        return _wanted_once(statistics, top, cell, output)
    return _wanted(statistics, top, cell, output)


def _wanted(
    statistics: str | Choice | Iterable[str | Choice] | None, top: int, cell: int, output: bool
) -> Wanted:
    if statistics is None:
        chosen: list[str | Choice] = list(TABLE)
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
        elif not isinstance(item, str) or item not in TABLE:
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


_wanted_once = lru_cache(_wanted)


def read(
    state: State, want: Wanted, keys_only: State, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Row statistics from a state, by name; groups by `group:name`.

    Args:
        state: of the keys and the learned sink, if there is one.
        want: what was asked for.
        keys_only: of the keys alone: positions are means over tokens, masses are shares of everything.
        dtype: of the results; counts and keys are int64.
    """
    # With a sink the largest weight is no 1/l: its bits are to be those of torch's exponential, as in the top weights.
    if keys_only is not state or not _plain(state):
        values = _formulas(torch, state, want, keys_only)
        if "max_weight" in values:
            values["max_weight"] = values["max_weight"].detach()
        return {name: t if t.dtype == torch.int64 else t.to(dtype) for name, t in values.items()}
    # The same formulas on the same memory: for a few rows torch takes longer to be asked than to compute.
    numbers = _arrays(state)
    with np.errstate(all="ignore"):
        values = _formulas(np, numbers, want, numbers)
    exact = np.float64 if dtype == torch.float64 else np.float32
    return {
        name: torch.from_numpy(array if array.dtype == np.int64 else array.astype(exact))
        for name, array in values.items()
    }


def _plain(state: State) -> bool:
    """Whether the state is numbers in memory, of which no derivative can be asked."""
    sums = (state.l, state.u, state.r, state.c)
    graded = any(t is not None and t.requires_grad for t in sums)
    hidden = tracing(state.l) or transforming(*sums) or type(state.l) is not Tensor
    return state.l.device.type == "cpu" and not graded and not hidden


def _arrays(state: State) -> Any:
    """The state with NumPy's arrays for its tensors, on the same memory."""
    held = {name: getattr(state, name) for name in SUMS if name != "o"}
    arrays: dict[str, Any] = {n: None if tensor is None else tensor.numpy() for n, tensor in held.items()}
    return State(**arrays)


def _formulas(xp: Any, state: Any, want: Wanted, keys_only: Any) -> dict[str, Any]:
    """The table's row statistics; `xp` is torch or NumPy, whose names agree, and computes on what the states hold."""
    empty, alone = state.l == 0, keys_only is state
    total = xp.where(empty, 1.0, state.l)
    log, m = xp.log(total), state.m + xp.zeros_like(total)  # m in the type of the sums
    center = xp.where(empty, 0.0, m)
    peak = xp.exp(xp.where(empty, -xp.inf, (m if alone else keys_only.m) - center)) / total
    values = {"lse": m + log}
    if state.u is not None:
        values["entropy"] = log - state.u / total
        values["effective_keys"] = xp.where(empty, 0.0, xp.exp(values["entropy"]))
    if state.r is not None:
        values["sum_squares"] = state.r / (total * total)
    if state.top_keys is not None:
        values["max_weight"] = peak
        values["argmax"] = xp.where(xp.isnan(state.l), -1, state.top_keys[..., 0])
    if state.c is not None:
        fractions = means = state.c / total[..., None]
        if not alone:
            means = keys_only.c / xp.where(keys_only.l == 0, 1.0, keys_only.l)[..., None]
        for i, column in enumerate(want.columns):
            values[column.name] = (means if column.name in _PLAIN else fractions)[..., i]
    if "square" in values:
        variance = values["square"] - values["position"] * values["position"]
        flat = variance <= 0  # set aside before the root, whose derivative there is infinite
        values["spread"] = xp.sqrt(xp.where(flat, 1.0, variance)) * ~flat
    if "sink" in want.names:
        values["sink"] = xp.zeros_like(total) if alone else xp.where(empty, 0.0, 1 - peak * keys_only.l)
    if state.count is not None:
        values["allowed"] = state.count
    return {name: values[name] for name in values if name in want.names}


def named(keys: Tensor, state: State) -> Tensor:
    """The keys of the largest weights; −1 in a row whose weights are NaN, as nothing is the largest of them."""
    return torch.where(state.l.isnan()[..., None], -1, keys)
