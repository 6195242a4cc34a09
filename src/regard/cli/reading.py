"""A model reads a text while it is watched: the same for `regard look` and `regard explore`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from regard.cli.models import Reader
from regard.record import Record
from regard.statistics import TABLE, Choice, token_groups
from regard.watch import Change, Plan, intervene, watch


@contextmanager
def watched(
    reader: Reader,
    inputs: dict[str, Any],
    keep: Literal["statistics", "vectors"],
    cells: int = 128,
    layers: Sequence[str] | None = None,
) -> Iterator[Record]:
    """Watch a model that is run within; on exit the record has its tokens.

    Args:
        reader: the model. inputs: what it is run on, from `reader.inputs`.
        keep: as for `watch`. cells: of the maps, a side at most. layers: as for `watch`.
    """
    statistics: tuple[str | Choice, ...] = tuple(TABLE)
    read = reader.tokens(inputs["input_ids"][0])
    # Queries and keys of an encoder–decoder are of two texts.
    if not reader.answers:
        statistics += token_groups(inputs["input_ids"], [read], causal=reader.writes)
    with watch(reader.model, keep=keep, map=cells, statistics=statistics, layers=layers) as record:
        yield record
    record.tokens, record.source_tokens = [read], None
    if reader.answers:
        record.tokens, record.source_tokens = [reader.tokens(inputs["decoder_input_ids"][0])], [read]


@contextmanager
def changed(
    reader: Reader,
    inputs: dict[str, Any],
    keep: Literal["statistics", "vectors"],
    changes: Sequence[Change],
    layers: Sequence[str],
) -> Iterator[Record]:
    """Watch a model that is run within with heads changed; the record is whole on exit.

    Args:
        reader: the model. inputs: what it is run on.
        keep: as for `watch`; of layers whose heads have weights of several kinds statistics alone are kept.
        changes: what is done to heads. layers: the names of all calls, in order.
    """
    several = {
        layer
        for change in changes
        for layer, _ in change.heads or ()
        if change.output is None or change.temperature or change.mask or change.top or change.uniform
    }
    plain = [layer for layer in dict.fromkeys(layers) if layer not in several]
    with intervene(reader.model, Plan(changes)):
        if keep == "statistics" or not several or not plain:
            if several:
                keep = "statistics"
            with watched(reader, inputs, keep) as record:
                yield record
            return
        with (
            watched(reader, inputs, "statistics", layers=sorted(map(str, several))) as without,
            watched(reader, inputs, keep, layers=plain) as record,
        ):
            yield record
        # Each layer is in one of the two, and its calls are in order there.
        seen = [iter(record.calls), iter(without.calls)]
        record.calls = [next(seen[layer in several]) for layer in layers]
