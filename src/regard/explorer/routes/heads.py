"""One head of one call: its tiles, its weights one by one, the largest of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response

from regard.errors import ArgumentError
from regard.explorer.lanes import Lane
from regard.explorer.opened import NotOpenError, OpenRecord
from regard.explorer.preparing import Place, Preparing
from regard.explorer.routes.shared import (
    ARRAYS,
    MOST,
    Arrays,
    Batch,
    Index,
    Open,
    Prepared,
    QuickLane,
    SlowLane,
)
from regard.web.tiles import Tiles
from regard.web.view import tokens_of

router = APIRouter(prefix="/records/{record}/calls/{call}/heads/{head}")
# Peaks that may be asked for.
MOST_PEAKS = 1000
Number = Annotated[int, Query(ge=0, le=MOST)]


@dataclass
class PairLine:
    """One query and one key: `score` is None where it is −∞; tokens are None where they are not known."""

    weight: float
    score: float | None
    allowed: bool
    query_token: str | None
    key_token: str | None


@dataclass
class PeakLine:
    """A large weight."""

    query: int
    key: int
    weight: float


T = TypeVar("T")


@dataclass
class Head:
    """One head that is asked about, and the turns in which it answers."""

    request: Request
    record: OpenRecord
    position: Place
    quick: Lane
    slow: Lane
    preparing: Preparing

    async def ask(self, question: Callable[[Tiles, Event], T], *, slow: bool = False) -> T:
        """The answer of the head's tiles.

        Args:
            question: is given the tiles, and a flag that is set when nobody waits any more.
            slow: whether it takes seconds.
        """

        def run(cancel: Event) -> T:
            with _as_missing():
                return question(self.record.tiles.head(*self.position), cancel)

        if slow:
            return await self.slow(self.request, run)
        return await self.quick(self.request, run)


@contextmanager
def _as_missing() -> Iterator[None]:
    """An index that a head does not have is a place that is not there."""
    try:
        yield
    except ArgumentError as error:
        raise NotOpenError(str(error)) from error


def _head(
    request: Request,
    record: str,
    call: Index,
    head: Index,
    opened: Open,
    quick: QuickLane,
    slow: SlowLane,
    preparing: Prepared,
    batch: Batch = 0,
) -> Head:
    one = opened[record]
    one.call(call)
    return Head(request, one, (call, head, batch), quick, slow, preparing)


OneHead = Annotated[Head, Depends(_head)]


@router.get("/tiles/{cell}/{row}/{column}", responses=ARRAYS, response_class=Response)
async def tile(
    head: OneHead, cell: Index, row: Index, column: Index, pool: Literal["mean", "max"] = "max"
) -> Any:
    """One tile of the map whose cells are `cell` × `cell` tokens: `log`, float16 log-weights, at most (256, 256)."""
    # Tiles that are there must not wait behind those that take a fold over millions of pairs.
    ready = await head.ask(lambda tiles, _: tiles.ready(cell))
    if not ready:
        head.preparing.ask(head.record.tiles, head.position)
    return await head.ask(
        lambda tiles, cancel: Arrays({"log": tiles.tile(cell, row, column, pool, cancel=cancel)}),
        slow=not ready,
    )


@router.get("/rows/{query}", responses=ARRAYS, response_class=Response)
async def weights_of_query(head: OneHead, query: Index) -> Any:
    """All weights of one query: `weights`, float32 (keys)."""
    return await head.ask(lambda tiles, cancel: Arrays({"weights": tiles.row(query, cancel=cancel)}))


@router.get("/columns/{key}", responses=ARRAYS, response_class=Response)
async def weights_on_key(head: OneHead, key: Index) -> Any:
    """All weights on one key: `weights`, float32 (queries)."""
    return await head.ask(lambda tiles, cancel: Arrays({"weights": tiles.column(key, cancel=cancel)}))


@router.get("/window", responses=ARRAYS, response_class=Response)
async def window(head: OneHead, q0: Number, q1: Number, k0: Number, k1: Number) -> Any:
    """The weights of queries q0 ≤ q < q1 on keys k0 ≤ k < k1, at most 2²⁰: `weights`, float32 (queries, keys)."""
    return await head.ask(
        lambda tiles, cancel: Arrays({"weights": tiles.window(q0, q1, k0, k1, cancel=cancel)})
    )


@router.get("/pairs/{query}/{key}")
async def pair(head: OneHead, query: Index, key: Index) -> PairLine:
    """One weight, its score, and the tokens."""

    def line(tiles: Tiles, _cancel: Event) -> PairLine:
        one = tiles.pair(query, key)
        score = None
        if math.isfinite(one.score):
            score = one.score
        call, _, batch = head.position
        queries, keys = tokens_of(head.record.record, head.record.call(call), batch)
        return PairLine(one.weight, score, one.allowed, _token(queries, query), _token(keys, key))

    return await head.ask(line)


def _token(tokens: list[str] | None, index: int) -> str | None:
    if tokens is None:
        return None
    return tokens[index]


@router.get("/peaks")
async def peaks(
    head: OneHead,
    count: Annotated[int, Query(ge=1, le=MOST_PEAKS)] = 20,
    away: Number = 0,
    first: Number = 0,
) -> list[PeakLine]:
    """The largest weights with |position of the query − key| ≥ away and key ≥ first, exact, largest first."""
    return await head.ask(
        lambda tiles, cancel: [
            PeakLine(*peak) for peak in tiles.peaks(count, away=away, first=first, cancel=cancel)
        ],
        slow=True,
    )
