"""What is looked at in a record, as a table of its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from regard.errors import ArgumentError, RecordError, require
from regard.record import Call, Record
from regard.statistics.observation import COLUMNS, check_index
from regard.web.series import statistic
from regard.web.words import section_of, texts_of

if TYPE_CHECKING:
    from pandas import DataFrame

# Weights of a window that is written down, and numbers of a series.
MOST = 1 << 20
What = Literal["heads", "window", "series"]


@dataclass(frozen=True)
class View:
    """A part of a record.

    Attributes:
        what: "heads", the table of heads; "window", weights of one head; "series", a statistic along the tokens.
        call, head, batch: which; the table of heads has all.
        q0, q1, k0, k1: queries `q0 ≤ q < q1` and keys `k0 ≤ k < k1` of a window; None: to the end.
        name: of the statistic of a series.
    """

    what: What = "heads"
    call: int = 0
    head: int = 0
    batch: int = 0
    q0: int = 0
    q1: int | None = None
    k0: int = 0
    k1: int | None = None
    name: str = "entropy"


def table(record: Record, view: View) -> DataFrame:
    """The numbers of a view.

    Returns:
        of "heads", `record.heads`; of "window", a row per query and key: `query`, `key`, their tokens where they are
        known, and `weight`; of "series", a row per query or key, with a column for each head.

    Raises:
        ArgumentError: no such call, head or statistic, or more than 2²⁰ numbers.
        RecordError: what is asked for was not kept.
        MissingPackageError: pandas is not installed.
    """
    if view.what == "heads":
        return record.heads
    pandas = require("pandas", extra="table")
    call = call_of(record, view)
    queries, keys = tokens_of(record, call, view.batch)
    if view.what == "series":
        return pandas.DataFrame(_series(call, view, queries, keys))
    return pandas.DataFrame(_window(call, view, queries, keys))


class OneHead(Protocol):
    """What names a call, a head of it and a row of the batch."""

    @property
    def call(self) -> int: ...

    @property
    def head(self) -> int: ...

    @property
    def batch(self) -> int: ...


def call_of(record: Record, view: OneHead) -> Call:
    """The call that a view is of.

    Raises:
        ArgumentError: the record has no such call, head or row of the batch.
    """
    check_index("call", view.call, len(record))
    call = record[view.call]
    check_index("head", view.head, call.sizes.heads)
    check_index("batch", view.batch, call.sizes.batch)
    return call


def tokens_of(record: Record, call: Call, batch: int) -> tuple[list[str] | None, list[str] | None]:
    """The tokens that the queries and the keys of a call are, where there is one for each."""
    texts = {"tokens": record.tokens, "source": record.source_tokens}
    sides = []
    for name, size in zip(
        texts_of(record, section_of(record, call)), (call.sizes.queries, call.sizes.keys), strict=True
    ):
        rows = texts[name]
        tokens = None
        if rows is not None and batch < len(rows) and len(rows[batch]) == size:
            tokens = rows[batch]
        sides.append(tokens)
    return sides[0], sides[1]


def _window(
    call: Call, view: View, queries: list[str] | None, keys: list[str] | None
) -> dict[str, np.ndarray | list[str]]:
    rows = range(call.sizes.queries)[view.q0 : view.q1]
    columns = range(call.sizes.keys)[view.k0 : view.k1]
    if len(rows) * len(columns) > MOST:
        raise ArgumentError(f"a window must have at most {MOST} weights, got {len(rows)} × {len(columns)}")
    weights = call.weights(
        view.head, slice(rows.start, rows.stop), slice(columns.start, columns.stop), view.batch
    )
    result: dict[str, np.ndarray | list[str]] = {
        "query": np.repeat(np.array(rows, dtype=np.int64), len(columns)),
        "key": np.tile(np.array(columns, dtype=np.int64), len(rows)),
    }
    if queries is not None:
        result["query_token"] = [queries[row] for row in rows for _ in columns]
    if keys is not None:
        result["key_token"] = [keys[column] for _ in rows for column in columns]
    return result | {"weight": weights.flatten().cpu().numpy()}


def _series(
    call: Call, view: View, queries: list[str] | None, keys: list[str] | None
) -> dict[str, np.ndarray | list[str]]:
    values, _ = statistic(call, view.name, view.batch)
    if values.numel() > MOST:
        raise RecordError(f"a table must have at most {MOST} numbers, and {view.name} has {values.numel()}")
    side, tokens = "query", queries
    if view.name in COLUMNS:
        side, tokens = "key", keys
    result: dict[str, np.ndarray | list[str]] = {side: np.arange(values.shape[-1])}
    if tokens is not None:
        result["token"] = tokens
    heads = values.detach().cpu().numpy()
    return result | {f"head {head}": heads[head] for head in range(len(heads))}
