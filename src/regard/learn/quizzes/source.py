"""What questions are about: the heads of a record, their statistics and their weights, for one text of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import RegardError
from regard.learn.quizzes.picture import Picture
from regard.record import Call, Record
from regard.record.layers import short_names
from regard.web.words import section_of, texts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

# Keys up to which the weights of a head are computed at once.
MOST_KEYS = 1024
# How far from 1 the weights of a query may add up: a learned sink takes more.
REST = 1e-3
SMALLEST = 1e-3  # weight of a key that a picture of one row shows
LONGEST = 24  # characters of a token


@dataclass(frozen=True, order=True)
class Head:
    """One head of a record: the index of its call, and its number within."""

    call: int
    head: int


class Source:
    """One text of a record, asked for numbers.

    Args:
        record: of any model. batch: which row.
    """

    def __init__(self, record: Record, batch: int = 0) -> None:
        self.record, self.batch = record, batch
        calls = record.calls
        # One layer may be called several times: then the short names are not all different.
        names = short_names([call.layer for call in calls], [call.kind for call in calls])
        repeated = len(set(names)) < len(names)
        self.names = [f"{name} (call {index})" if repeated else name for index, name in enumerate(names)]
        # Tensors are read again and again while questions are tried.
        self.weights = lru_cache(maxsize=256)(self._weights)
        self.statistic = lru_cache(maxsize=4096)(self._statistic)
        self.rows_valid = lru_cache(maxsize=256)(self._rows_valid)

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """What a question's number is made of: model, text, sizes, and a coarse measure of each call."""
        tokens = self.record.tokens or [[]]
        sizes = [
            (call.layer, call.kind, call.sizes.heads, call.sizes.queries, call.sizes.keys)
            for call in self.record
        ]
        text = tokens[self.batch] if self.batch < len(tokens) else []
        # Another checkpoint has other answers, and so other cards; rounding of another machine hardly ever.
        measured = [self.statistic("entropy", Head(index, 0)) or 0.0 for index in range(len(sizes))]
        coarse = [f"{value:.1f}" for value in measured]
        return (str(self.record.info.get("model", "")), self.batch, text, sizes, coarse)

    def heads(self, kind: str | None = None) -> list[Head]:
        """All heads, or those of "self" or "cross" attention, that have this row of the batch."""
        return [
            Head(index, head)
            for index, call in enumerate(self.record)
            if kind in (None, call.kind) and self.batch < call.sizes.batch
            for head in range(call.sizes.heads)
        ]

    def call(self, head: Head) -> Call:
        """The call that a head is of."""
        return self.record.calls[head.call]

    def name(self, head: Head) -> str:
        """As a learner reads it: "layer 2, head 4"."""
        return f"{self.names[head.call]}, head {head.head}"

    def _rows_valid(self, head: Head) -> NDArray[np.bool_]:
        """`(queries,)`: those that attend something and are no padding."""
        call = self.call(head)
        # A layer may see some rows of the batch only.
        if self.batch >= call.sizes.batch:
            return np.zeros(call.sizes.queries, bool)
        try:
            valid = call.valid()[self.batch]
        except RegardError:
            return np.zeros(call.sizes.queries, bool)
        return np.asarray(valid[min(head.head, len(valid) - 1)].cpu())

    def _statistic(self, name: str, head: Head) -> float | None:
        """The mean of a row statistic over the valid queries of the text; None where it was not kept."""
        values, valid = self.rows(name, head), self.rows_valid(head)
        if values is None or not valid.any() or not np.isfinite(values[valid]).all():
            return None
        return float(values[valid].mean())

    def rows(self, name: str, head: Head) -> Numbers | None:
        """`(queries,)`, a row statistic of one head; None where it was not kept."""
        call = self.call(head)
        if name not in call.row_names() or self.batch >= call.sizes.batch:
            return None
        values = call.rows(name)[self.batch]
        # Heads that share a mask may share a row.
        return np.asarray(values[min(head.head, len(values) - 1)].detach().cpu().double())

    def _weights(self, head: Head) -> Numbers | None:
        """`(queries, keys)` in float64; None without vectors, or where there are too many or a sink takes a part."""
        call = self.call(head)
        if max(call.sizes.queries, call.sizes.keys) > MOST_KEYS or not call.normalized or call.query is None:
            return None
        try:
            weights = np.asarray(call.weights(head.head, batch=self.batch).detach().cpu().double())
        except RegardError:
            return None
        sums = weights[self.rows_valid(head)].sum(-1)
        if not np.isfinite(weights).all() or (np.abs(sums - 1) > REST).any():
            return None
        return weights

    # --- words ---------------------------------------------------------------------------------------------

    def tokens(self, head: Head, side: int) -> list[str]:
        """A label for each query (side 0) or key (side 1): its token and its position."""
        call = self.call(head)
        size = call.sizes.keys if side else call.sizes.queries
        first = 0 if side else call.offset
        texts = {"tokens": self.record.tokens, "source": self.record.source_tokens}
        rows = texts[texts_of(self.record, section_of(self.record, call))[side]]
        row = rows[self.batch] if rows and self.batch < len(rows) else []
        # With a cache one list may name more than the queries of this call.
        if len(row) != size and len(row) < first + size:
            return [f"token {first + index}" for index in range(size)]
        start = 0 if len(row) == size else first
        return [f"“{_visible(row[start + index])}” ({first + index})" for index in range(size)]

    def picture(self, head: Head, title: str | None = None) -> Picture | None:
        """The map of a head: of its weights, else the one that the record has; None where there is none."""
        title = self.name(head) if title is None else title
        # Exact weights first: a pooled map hides a thin line.
        call, weights = self.call(head), self.weights(head)
        if weights is not None:
            return Picture.of_weights(weights, self.tokens(head, 0), self.tokens(head, 1), title)
        if call.map is None:
            return None
        pooled = np.asarray(call.map(head.head, batch=self.batch).detach().cpu().double())
        # A map of a call in which nothing may be attended has no cell.
        if not pooled.size or not np.isfinite(pooled).all():
            return None
        return Picture.of_weights(pooled, title=title)

    def row_picture(self, head: Head, query: int, most: int = 16) -> Picture | None:
        """The weights of one query, the largest of them in the order of the text."""
        weights = self.weights(head)
        if weights is None:
            return None
        # Largest first to choose them, then in the order in which they are read.
        keys = np.sort(np.argsort(-weights[query], kind="stable")[:most])
        keys = keys[weights[query, keys] >= SMALLEST]
        labels, name = self.tokens(head, 1), self.tokens(head, 0)[query]
        return Picture.of_bars(
            weights[query, keys].tolist(),
            [labels[key] for key in keys],
            f"{self.name(head)}: weights of {name}",
            "attention weight",
        )

    def where(self) -> str:
        """Which text of several is meant; "" where there is one."""
        sizes = [call.sizes.batch for call in self.record]
        return f"In text {self.batch + 1} of the batch: " if max(sizes, default=1) > 1 else ""

    def subject(self, *heads: Head, **more: Any) -> dict[str, Any]:
        """What a question is about, for whoever computes its answer anew."""
        return {"batch": self.batch, "heads": [[head.call, head.head] for head in heads], **more}


def _visible(token: str) -> str:
    """A token that can be seen: blanks and ends of lines by their signs."""
    # A blank before a word is a part of its token, and decides which one it is.
    shown = token.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
