"""Where in a record a finding can be seen: the call, the text, the query and the key that it speaks of.

Knows what the rules look at; whether something is wrong there is theirs to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regard.analysis.diagnosis.finding import Finding
from regard.analysis.diagnosis.numbers import padded_keys
from regard.analysis.diagnosis.samples import samples
from regard.record import Call, Record
from regard.training.monitor.numbers import faulty_queries, query_scores

# Weights of a head among which the largest one is looked for, and queries whose weights are looked at at a time.
MOST, STRIP = 1 << 26, 1024


class Place(NamedTuple):
    """A place in a record, all of it counted from 0; `query` and `key` are None where a finding is about all of them.

    Attributes:
        call: index in the record. batch: row of the batch.
    """

    call: int
    batch: int = 0
    query: int | None = None
    key: int | None = None


# How bad it is there, by which calls of one layer are told apart, and the place.
Found = tuple[float, Place]


def place_of(record: Record, finding: Finding) -> Place | None:
    """Where a finding can be seen in the record that was diagnosed.

    Args:
        record: what `diagnose` was given.
        finding: one of its findings.

    Returns:
        The place; None for a finding about the whole model, or about a layer that the record does not have.

    Example:
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> with rg.watch(layer) as record:
        ...     _ = layer(torch.randn(1, 31, 16))
        >>> place_of(record, Finding("sink", "note", record[0].layer, "self", 1, 0.5, 0.3, evidence={"first": 0.5}))
        Place(call=0, batch=0, query=None, key=0)
    """
    look = LOOKS.get(finding.name)
    best: Found | None = None
    for index, call in enumerate(record):
        if (call.layer, call.kind) != (finding.layer, finding.kind):
            continue
        candidate = None
        if look is not None and finding.head is not None and call.sizes.queries and call.sizes.keys:
            candidate = look(record, index, finding)
        # Of a layer that was called several times, the call where it is worst; without numbers the first one.
        candidate = candidate or (-torch.inf, Place(index))
        if best is None or candidate[0] > best[0]:
            best = candidate
    if best is None:
        return None
    return best[1]


def _key(record: Record, index: int, finding: Finding) -> Found | None:
    """The key that most of the weight is on."""
    call, head = record[index], _head(finding)
    tokens = record.tokens if call.kind == "self" else record.source_tokens
    numbers = samples(call, padded_keys(call, record), tokens)
    # A finding about the first key has its share as evidence, one about another key that of the most attended one.
    name = "first" if "first" in finding.evidence else "one_key"
    if name not in numbers:
        return None
    share, batch = numbers[name][:, head].nan_to_num(nan=-1.0).max(0)
    if share < 0:
        return None
    key = 0
    if name == "one_key":
        key = int(numbers["key"][batch, head])
    return float(share), Place(index, int(batch), None, key)


def _padding(record: Record, index: int, finding: Finding) -> Found | None:
    """The padding that gets most."""
    call = record[index]
    padded = padded_keys(call, record)
    if padded is None or call.received is None:
        return None
    received = call.received[:, _head(finding)].detach().cpu().double()
    on_padding = torch.where(padded, received, -1.0)
    batch, key = _largest(on_padding)
    return float(on_padding[batch, key]), Place(index, batch, None, key)


def _not_finite(record: Record, index: int, finding: Finding) -> Found | None:
    """The first query with a number that is not finite."""
    call = record[index]
    if call.entropy is None:
        return None
    faulty = faulty_queries(call)[:, _head(finding)]
    if not bool(faulty.any()):
        return None
    batch, query = _largest(faulty.double())
    return float(faulty.sum()), Place(index, batch, query, None)


def _score(record: Record, index: int, finding: Finding) -> Found | None:
    """The pair with the largest score."""
    call, head = record[index], _head(finding)
    if call.lse is None or call.max_weight is None or not call.sizes.queries:
        return None
    scores = query_scores(call)[:, head]
    batch, query = _largest(scores)
    key = None
    if call.query is not None:
        weights = call.weights(head, slice(query, query + 1), batch=batch)[0]
        key = int(weights.nan_to_num(nan=-1.0).argmax())
    elif call.argmax is not None:
        key = int(call.argmax[batch, head, query])
    if key == -1:
        key = None
    return float(scores[batch, query]), Place(index, batch, query, key)


def _later(record: Record, index: int, finding: Finding) -> Found | None:
    """The largest weight on a key after its query; where that is not known, the cell of the map with most of them."""
    call, head = record[index], _head(finding)
    if not call.placed:
        return None
    batches = range(call.sizes.batch)
    if call.query is not None and call.sizes.queries * call.sizes.keys <= MOST:
        return max((_largest_later(call, index, head, batch) for batch in batches), key=lambda one: one[0])
    if call.map is None:
        return None
    cells = call.map.total[:, head].detach().cpu().double()
    first, cell = call.map.offset // call.map.cell, call.map.cell
    # A cell on the diagonal holds earlier keys too, and nobody knows which of them its mass is on.
    row, column = torch.arange(cells.shape[1]) + first, torch.arange(cells.shape[2])
    cells = torch.where(column > row[:, None], cells, -1.0)
    batch = max(batches, key=lambda batch: float(cells[batch].max()))
    query, key = _largest(cells[batch])
    if cells[batch, query, key] <= 0:
        return None
    begin = max(0, (query + first) * cell - call.offset)
    return float(cells[batch, query, key]), Place(index, batch, begin, key * cell)


def _largest_later(call: Call, index: int, head: int, batch: int) -> Found:
    """The largest weight of one head and text on a key after its query."""
    best: Found = (-torch.inf, Place(index, batch))
    keys = torch.arange(call.sizes.keys)
    for rows in torch.arange(call.sizes.queries).split(STRIP):
        begin, end = int(rows[0]), int(rows[-1]) + 1
        weights = call.weights(head, slice(begin, end), batch=batch).double().cpu()
        behind = keys > (rows + call.offset)[:, None]
        weights = torch.where(behind, weights.nan_to_num(nan=-1.0), -1.0)
        row, key = _largest(weights)
        if float(weights[row, key]) > best[0]:
            best = float(weights[row, key]), Place(index, batch, begin + row, key)
    return best


def _head(finding: Finding) -> int:
    assert finding.head is not None, "asked of findings about one head alone"
    return finding.head


def _largest(table: Tensor) -> tuple[int, int]:
    """Row and column of the largest number, the first one of several."""
    return divmod(int(table.argmax()), table.shape[1])


LOOKS: dict[str, Callable[[Record, int, Finding], Found | None]] = {
    "sink": _key,
    "collapse": _key,
    "attention to padding": _padding,
    "not finite": _not_finite,
    "entropy collapse": _score,
    "score growth": _score,
    "softmax saturation": _score,
    "broken causality": _later,
}
