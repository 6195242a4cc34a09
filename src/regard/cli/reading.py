"""A model reads a text while it is watched: the same for `regard look` and `regard explore`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from regard.cli.models import Reader
from regard.record import Record
from regard.statistics import TABLE, Choice, token_groups
from regard.watch import watch


@contextmanager
def watched(
    reader: Reader, inputs: dict[str, Any], keep: Literal["statistics", "vectors"], cells: int = 128
) -> Iterator[Record]:
    """Watch a model that is run within; on exit the record has its tokens.

    Args:
        reader: the model. inputs: what it is run on, from `reader.inputs`.
        keep: as for `watch`. cells: of the maps, a side at most.
    """
    statistics: tuple[str | Choice, ...] = tuple(TABLE)
    read = reader.tokens(inputs["input_ids"][0])
    # Queries and keys of an encoder–decoder are of two texts.
    if not reader.answers:
        statistics += token_groups(inputs["input_ids"], [read], causal=reader.writes)
    with watch(reader.model, keep=keep, map=cells, statistics=statistics) as record:
        yield record
    record.tokens, record.source_tokens = [read], None
    if reader.answers:
        record.tokens, record.source_tokens = [reader.tokens(inputs["decoder_input_ids"][0])], [read]
