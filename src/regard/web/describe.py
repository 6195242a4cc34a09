"""What a record holds, as plain values: its calls, their sizes, means and roles; no array that grows with n × n."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from regard.analysis.roles import of_call
from regard.record import Call, Record
from regard.record.layers import short_names
from regard.record.picture import PICTURE
from regard.record.table import ROLE, means, names_of, sums
from regard.statistics.observation import COLUMNS
from regard.statistics.roles import ROLES
from regard.web.picture import PictureDescription, describe_picture
from regard.web.words import section_of, texts_of, words

# Logarithms that lie on both sides of a middle: colored by a diverging map.
DIVERGING = ("lse",)


@dataclass
class StatisticDescription:
    """What a number means: see `regard.statistics.TABLE`."""

    title: str
    meaning: str
    formula: str
    unit: str
    diverging: bool = False


@dataclass
class RoleDescription:
    """The role of one head, its score, and the interval of the score; see `regard.analysis.roles`."""

    role: str
    score: float | None
    low: float | None
    high: float | None


@dataclass
class CallDescription:
    """One attention call.

    Attributes:
        index: its place in the record. layer: the module's name. name: a short one.
        section: the part of the model: "Self-attention", "Encoder", "Decoder", "Cross-attention".
        query_text, key_text: "tokens" or "source": which of the record's texts the queries and the keys are.
        vectors: whether exact weights can be had. map_cell: tokens a cell of the kept map; None without one.
        mask: its name, where the vectors were kept and there is one.
        means: statistic → a mean for each head, over the valid queries of all rows of the batch; None where unknown.
        roles: a role for each head; None where no role can be told.
        scores: role → a score for each head.
    """

    index: int
    layer: str
    name: str
    section: str
    kind: str
    seen: str
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    offset: int
    steps: int
    normalized: bool
    placed: bool
    vectors: bool
    query_text: str
    key_text: str
    map_cell: int | None
    mask: str | None
    means: dict[str, list[float | None]]
    roles: list[RoleDescription] | None
    scores: dict[str, list[float | None]]


@dataclass
class Description:
    """One record: what was run, its tokens, its calls, and what their statistics mean.

    Attributes:
        statistics: by name, of all calls together, those of columns and the scores of roles among them.
        row_statistics, column_statistics: of which of them there are series.
        picture: which tokens are patches of a picture; None without one.
    """

    id: str
    title: str
    info: dict[str, Any]
    tokens: list[list[str]] | None
    source_tokens: list[list[str]] | None
    unseen: dict[str, str]
    statistics: dict[str, StatisticDescription]
    row_statistics: list[str] = field(default_factory=list)
    column_statistics: list[str] = field(default_factory=list)
    picture: PictureDescription | None = None
    calls: list[CallDescription] = field(default_factory=list)


def describe(record: Record, identity: str = "", title: str = "") -> Description:
    """The description of a record.

    Args:
        record: what `watch` gave.
        identity: what the viewer calls it by.
        title: its heading; by default the model's name.

    Raises:
        MissingPackageError: scipy is not installed, by which intervals of roles are computed.
    """
    calls = list(record.calls)
    names = short_names([call.layer for call in calls], [call.kind for call in calls])
    described = [
        _call(record, call, index, name) for index, (call, name) in enumerate(zip(calls, names, strict=True))
    ]
    rows = dict.fromkeys(name for call in calls for name in _series_names(call))
    columns = [name for name in COLUMNS if any(getattr(call, name) is not None for call in calls)]
    shown = dict.fromkeys(name for call in described for name in (*call.means, *call.scores))
    # Calls of one record were watched with the same parameters.
    parameters: dict[str, Any] = {}
    if calls:
        parameters = calls[0].parameters
    # Scores go by the name of their role alone, as nothing else is called so.
    statistics = {
        name.removeprefix(ROLE): StatisticDescription(**line, diverging=name in DIVERGING)
        for name, line in words(_full_names([*shown, *rows, *columns]), parameters).items()
    }
    return Description(
        id=identity,
        title=title or str(record.info.get("model") or "Attention"),
        # Its pixels have a way of their own.
        info={name: value for name, value in record.info.items() if name != PICTURE},
        tokens=record.tokens,
        source_tokens=record.source_tokens,
        unseen=record.unseen,
        statistics=statistics,
        row_statistics=list(rows),
        column_statistics=columns,
        picture=describe_picture(record),
        calls=described,
    )


def _call(record: Record, call: Call, index: int, name: str) -> CallDescription:
    section = section_of(record, call)
    query_text, key_text = texts_of(record, section)
    mean = _means(call)
    map_cell, mask = None, None
    if call.map is not None:
        map_cell = call.map.cell
    if call.spec is not None and call.spec.mask is not None:
        mask = call.spec.mask.name
    return CallDescription(
        index=index,
        layer=call.layer,
        name=name,
        section=section,
        kind=call.kind,
        seen=call.seen,
        batch=call.sizes.batch,
        heads=call.sizes.heads,
        kv_heads=call.sizes.kv_heads,
        queries=call.sizes.queries,
        keys=call.sizes.keys,
        offset=call.offset,
        steps=call.steps,
        normalized=call.normalized,
        placed=call.placed,
        vectors=call.query is not None and call.key is not None and call.spec is not None,
        query_text=query_text,
        key_text=key_text,
        map_cell=map_cell,
        mask=mask,
        means={name: values for name, values in mean.items() if not name.startswith(ROLE)},
        roles=_roles(call),
        scores={name.removeprefix(ROLE): values for name, values in mean.items() if name.startswith(ROLE)},
    )


def countable(call: Call) -> bool:
    """Whether the call tells which of its queries count: without it there are no means and no series."""
    return any(part is not None for part in (call.allowed, call.lse, call.attends))


def _means(call: Call) -> dict[str, list[float | None]]:
    """What is known of each head, in the order of the table of heads."""
    if not countable(call):
        return {}
    summed = sums(call)
    # A mean of places says nothing, and a sink is there only where it was learned.
    left_out = {"argmax"}
    if not call.parameters.get("sink_logit"):
        left_out.add("sink")
    names = [name for name in names_of([summed]) if name in summed and name not in left_out]
    averages = means(summed, names, call.sizes.heads)
    return {name: [number(value) for value in averages[name].tolist()] for name in names}


def _roles(call: Call) -> list[RoleDescription] | None:
    if not call.uniform or not countable(call):
        return None
    judged = of_call(call)
    columns = zip(*(judged[name].tolist() for name in ("role", "score", "low", "high")), strict=True)
    return [
        RoleDescription(str(role), number(score), number(low), number(high))
        for role, score, low, high in columns
    ]


def _series_names(call: Call) -> list[str]:
    """Row statistics and groups of which a call has one number for each query, by the names of their means."""
    if not countable(call):
        return []
    # A group may be called like a statistic, which then has the name alone.
    groups = [f"group.{name}" for name in call.groups]
    return [*(name for name in call.row_names() if name not in call.groups), *groups]


def _full_names(names: Iterable[str]) -> list[str]:
    """The names of scores with what the table of heads writes before them."""
    return [ROLE + name if name in ROLES else name for name in dict.fromkeys(names)]


def number(value: float) -> float | None:
    """A number for JSON, which has neither NaN nor infinity: None."""
    if math.isfinite(value):
        return value
    return None
