"""Words for what is shown of a record: titles of statistics, the part of the model that a call belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from regard.record import Call, Record
from regard.record.table import ROLE
from regard.statistics.roles import ROLES
from regard.statistics.table import MONITORED, SHARES, TABLE

_TITLES = {"self_mass": "self", "sum_squares": "Σ w²", "lse": "log-sum-exp"}
PLAIN, ENCODER, DECODER, CROSS = "Self-attention", "Encoder", "Decoder", "Cross-attention"


def words(columns: Iterable[str], parameters: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Title, formula, unit and one-line meaning of each statistic, as far as it is one."""
    described = {}
    for name in columns:
        if line := (TABLE | SHARES | MONITORED).get(name):
            formula, unit, meaning = line.formula, line.unit, line.explained(parameters)
        # What is in no table is the score of a role, or the mass on a group of keys.
        elif name.startswith(ROLE):
            role = ROLES[name.removeprefix(ROLE)]
            formula, unit = "between chance, 0, and the most possible, 1", "score"
            meaning = f"How much the head {role.meaning}, against what equal weights would do."
        else:
            group = name.partition(".")[2]
            formula, unit, meaning = (
                "Σ w over the group",
                "fraction",
                f"Share that goes to the keys named {group!r}.",
            )
        title = _TITLES.get(name, name.removeprefix(ROLE).replace("_", " "))
        described[name] = {"title": title, "formula": formula, "unit": unit, "meaning": meaning}
    return described


def section_of(record: Record, call: Call) -> str:
    """The part of the model that a call belongs to; encoder and decoder are told apart only where both may exist."""
    if call.kind == "cross":
        return CROSS
    # Encoder and decoder are told by their names, or else by length: a decoder has the queries of its cross-attention.
    crossed = [other.sizes.queries for other in record.calls if other.kind == "cross"]
    if not crossed and not record.source_tokens:
        return PLAIN
    # Whole parts of the name: "decoder" within "encoderdecoder" says nothing.
    names = re.split(r"[._]", call.layer.lower())
    for part in (DECODER, ENCODER):
        if part.lower() in names:
            return part
    if call.sizes.queries in crossed:
        return DECODER
    return ENCODER


def texts_of(record: Record, section: str) -> tuple[str, str]:
    """Which text the queries and the keys of a section's calls are: "tokens" or "source"."""
    query_text = "tokens"
    if section == ENCODER and record.source_tokens:
        query_text = "source"
    key_text = query_text
    if section == CROSS and record.source_tokens:
        key_text = "source"
    return query_text, key_text
