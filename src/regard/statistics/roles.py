"""The roles of heads: how much of what lies between chance and the most possible a head gives to a pattern.

Knows observations and what uniform weights under the same mask would give; it does not know models, nor how a head
is named by its scores, which `regard.analysis.roles` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.statistics.observation import Observation

# Queries that must have had a choice before their score says anything, or half of all in a short text.
FEWEST = 3
# Least room between chance and the most possible: nearly all keys of a short text are "local".
ROOM = 0.05
# Of the keys that may be the columns of a broadcast: one in so many, and at most so many.
ONE_IN, COLUMNS = 64, 16
# An offset counts as a diagonal where at least this part of the queries has a key there.
REACH = 0.5


@dataclass(frozen=True)
class Role:
    """One role.

    Attributes:
        meaning: what the head does, in one sentence.
        threshold: the score from which a head may be called so.
        mass: the statistic or the group of keys whose mass it is, if it is one.
        explains: more general roles that a head with this one has for that reason, unless they are clearly stronger.
        settles: roles that say nothing more once a head has this one, however strong they are.
    """

    name: str
    meaning: str
    threshold: float = 0.5
    mass: str | None = None
    explains: tuple[str, ...] = ()
    settles: tuple[str, ...] = ()


_ELSEWHERE = ("uniform", "global")
_LINES = (
    Role("previous token", "attends to the token before", 0.5, "previous", ("diagonal", "local"), _ELSEWHERE),
    Role("self", "attends to its own token", 0.5, "self_mass", ("diagonal", "local"), _ELSEWHERE),
    Role("first token", "rests on the first token", 0.5, "first", ("broadcast", "separator"), _ELSEWHERE),
    Role(
        "induction",
        "attends to what came after earlier occurrences of its token",
        0.5,
        "induction",
        ("diagonal", "broadcast", "local"),
        # It is scored where there is such a key; elsewhere the head may do as it likes.
        _ELSEWHERE,
    ),
    Role(
        "duplicate token",
        "attends to other occurrences of its token",
        0.5,
        "duplicate token",
        ("diagonal", "broadcast", "local"),
        _ELSEWHERE,
    ),
    Role(
        "bracket",
        "attends to the bracket that belongs to its own",
        0.5,
        "bracket",
        ("diagonal", "broadcast", "local"),
        _ELSEWHERE,
    ),
    Role("separator", "attends to separators and punctuation", 0.5, "separator", ("broadcast",), _ELSEWHERE),
    Role("diagonal", "attends to one fixed offset", 0.5, None, ("local",), _ELSEWHERE),
    Role("broadcast", "every query attends to the same few tokens", 0.5, None, (), _ELSEWHERE),
    Role("local", "attends to tokens nearby", 0.5, "local", (), _ELSEWHERE),
    Role("uniform", "attends to all tokens alike", 0.75, None, (), ("global",)),
    Role("global", "attends near and far alike, by content", 0.9),
)
ROLES: dict[str, Role] = {role.name: role for role in _LINES}

AFTER = " after"
"""Ends the name of a group that holds the keys after the query, where it may attend them."""

TOKEN_ROLES = ("induction", "duplicate token", "bracket", "separator")
"""Roles that are told by the tokens, by groups of these names: see `regard.statistics.token_groups`."""

NEEDED = ("first", "self_mass", "previous", "local")
"""Row statistics whose value under uniform weights the roles are scored against."""

Pieces = dict[str, tuple[Tensor, Tensor]]


def pieces(seen: Observation, uniform: Mapping[str, Tensor]) -> Pieces:
    """Numerator and denominator of the scores that are sums over queries, `(batch, heads, queries)` each, float64.

    A mass s is scored as (s − u)/(c − u), summed over the valid queries: u is what uniform weights under the same mask
    give, and c is 1 where the mask leaves the query such a key at all, else 0.

    Args:
        uniform: by name of the statistic or group, `(batch, heads or 1, queries)`.
    """
    valid = seen.valid()
    result: Pieces = {}
    for role in ROLES.values():
        name = role.mass
        if name is None or name not in uniform:
            continue
        mass, chance = _mass(seen, name), uniform[name].double()
        if mass is None:
            continue
        # Where queries look both ways, the keys behind them are a group of their own.
        behind = seen.groups.get(name + AFTER)
        if behind is not None and name in TOKEN_ROLES:
            mass, chance = mass + behind, chance + uniform[name + AFTER].double()
        possible = (chance > 0).double()
        counted = valid & (possible > 0)
        result[role.name] = (
            torch.where(counted, mass - chance, 0.0),
            torch.where(counted, possible - chance, 0.0),
        )
    if seen.effective_keys is not None and seen.allowed is not None:
        counted = valid & (seen.allowed > 1)
        result["uniform"] = (
            torch.where(counted, seen.effective_keys.double() - 1, 0.0),
            torch.where(counted, seen.allowed.double() - 1, 0.0),
        )
    return result


def scores(seen: Observation, uniform: Mapping[str, Tensor], offset: int = 0) -> dict[str, Tensor]:
    """The score of each role, `(batch, heads)` in [0, 1], float64: 0 is what uniform weights give, 1 the most possible.

    NaN where it cannot be told: too few queries have a choice, or chance is all that is possible. Roles of which a
    statistic was not kept are left out.

    Args:
        seen: an observation, with `allowed` or `lse`.
        uniform: the same statistics of uniform weights under the same mask, `(batch, heads or 1, …)`.
        offset: position of query 0.
    """
    valid = seen.valid()
    queries = valid.sum(-1)
    result = {}
    for name, (part, most) in pieces(seen, uniform).items():
        score = ratio(part.sum(-1), most.sum(-1))
        if name != "uniform":
            able = (most > 0).sum(-1)
            known = (able >= FEWEST) | (2 * able >= queries)
            # A text shorter than the radius holds nothing that is not local.
            known &= most.sum(-1) >= ROOM * able.clamp(min=1)
            score = torch.where(known, score, torch.nan)
        result[name] = score
    if seen.received is not None and "received" in uniform:
        result["broadcast"] = _broadcast(seen.received.double(), uniform["received"].double())
    if seen.by_offset is not None and "by_offset" in uniform:
        distances = offsets_of(seen, offset)
        chance = uniform["by_offset"].double()
        result["diagonal"] = diagonal(seen, uniform, offset)[0]
        result["global"] = _overlap(seen.by_offset.double(), chance, distances)
    return {name: torch.where(queries > 0, result[name], torch.nan) for name in ROLES if name in result}


def _mass(seen: Observation, name: str) -> Tensor | None:
    """The mass that a role is about, `(batch, heads, queries)`, float64; None where it was not kept."""
    mass = seen.groups.get(name)
    if name in NEEDED:
        mass = getattr(seen, name)
    if mass is None:
        return None
    return mass.double()


def ratio(part: Tensor, most: Tensor) -> Tensor:
    """part/most in [0, 1]; NaN where `most` is 0."""
    return torch.where(most > 0, part / torch.where(most > 0, most, 1.0), torch.nan).clamp(0, 1)


def offsets_of(seen: Observation, offset: int) -> Tensor:
    """What the last axis of `by_offset` is about: q − k, `(queries + keys − 1,)`, for query 0 at position `offset`."""
    assert seen.by_offset is not None
    keys = seen.by_offset.shape[-1] - seen.valid().shape[-1] + 1
    return torch.arange(seen.by_offset.shape[-1]) - (keys - 1) + offset


def diagonal(seen: Observation, uniform: Mapping[str, Tensor], offset: int = 0) -> tuple[Tensor, Tensor]:
    """The score of the best fixed offset, and by how much its key is before the query: `(batch, heads)` each."""
    assert seen.by_offset is not None
    distances = offsets_of(seen, offset)
    count = seen.valid().sum(-1).double().clamp(min=1).unsqueeze(-1)
    possible = _having(seen, count, distances, offset) / count
    share, chance = seen.by_offset.double() / count, uniform["by_offset"].double() / count
    score = torch.where(possible >= REACH, ratio(share - chance, possible - chance), 0.0)
    best, index = score.nan_to_num().max(-1)
    return best, distances[index]


def _having(seen: Observation, count: Tensor, distances: Tensor, offset: int) -> Tensor:
    """How many valid queries have a key at each distance: exact for full and causal masks, else a bound."""
    assert seen.by_offset is not None
    queries = seen.valid().shape[-1]
    keys = seen.by_offset.shape[-1] - queries + 1
    # In a text of its own, padding takes as many keys as queries.
    if queries == keys:
        last = count - 1
    else:
        last = torch.full_like(count, keys - 1)
    # Query q has such a key where 0 ≤ q − d ≤ last, and q runs from `offset`.
    low = distances.clamp(min=offset)
    high = torch.minimum(offset + count - 1, last + distances)
    return (high - low + 1).clamp(min=0)


def _broadcast(received: Tensor, uniform: Tensor) -> Tensor:
    """The share of the few keys that receive most, against what these keys get of uniform weights."""
    count = min(COLUMNS, max(1, received.shape[-1] // ONE_IN), received.shape[-1])
    most, keys = received.topk(count, -1)
    chance = uniform.expand_as(received).gather(-1, keys).sum(-1) / uniform.sum(-1)
    share = most.sum(-1) / received.sum(-1)
    return ratio(share - chance, 1 - chance)


def _overlap(by_offset: Tensor, uniform: Tensor, distances: Tensor) -> Tensor:
    """What the distances of a head and of uniform weights have in common, in octaves before and after the query."""
    octave = distances.abs().clamp(min=1).log2().floor().long() + 1
    # Offsets of 0 are an octave of their own; those after the query lie on the other side of it.
    octave = torch.where(distances == 0, 0, octave) * distances.sign()
    bins = octave - octave.min()
    parts = []
    for mass in (by_offset, uniform):
        summed = mass.new_zeros((*mass.shape[:-1], int(bins.max()) + 1)).index_add_(-1, bins, mass)
        parts.append(summed / summed.sum(-1, keepdim=True))
    return torch.minimum(*parts).sum(-1)
