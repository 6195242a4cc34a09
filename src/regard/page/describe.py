"""Turns a record into what the page's script reads: sections, calls, heads, texts, and the words for each number.

Knows the record and the table of statistics; it does not know how the page looks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regard.analysis.roles import of_call
from regard.page.encode import Numbers
from regard.page.pictures import Plan, countable, picture, series
from regard.record import Call, Record
from regard.record.table import means, names_of, sums
from regard.statistics.observation import COLUMNS, OFFSETS, ROWS
from regard.statistics.table import SHARES
from regard.web.words import CROSS, section_of, texts_of, words


def describe(record: Record, chosen: Plan, rows: int, numbers: Numbers) -> dict[str, Any]:
    """Everything the page's script reads, as plain JSON values; arrays go into `numbers`.

    Args:
        rows: how many rows of the batch the page carries.
    """
    calls = list(record.calls)
    kinds = [section_of(record, call) for call in calls]
    sections = list(dict.fromkeys(kinds))
    labels = {index: label for name in sections for index, label in _labels(calls, kinds, name).items()}
    columns, values = _values(calls, rows)
    roles = [_roles(call, rows) for call in calls]
    heads = [(index, head) for index, call in enumerate(calls) for head in range(call.sizes.heads)]
    return {
        "sequences": rows,
        "batch": max((call.sizes.batch for call in calls), default=0),
        "texts": {"tokens": _first(record.tokens, rows), "source": _first(record.source_tokens, rows)},
        "columns": columns,
        "statistics": words([*columns, *COLUMNS], calls[0].parameters if calls else {}),
        "sections": [
            {
                "title": name,
                "calls": [index for index, kind in enumerate(kinds) if kind == name],
                "heads": [i for i, (index, _) in enumerate(heads) if kinds[index] == name],
            }
            for name in sections
        ],
        "calls": [
            {
                "layer": call.layer,
                "label": labels[index],
                "kind": call.kind,
                "section": sections.index(kinds[index]),
                "heads": call.sizes.heads,
                "queries": call.sizes.queries,
                "keys": call.sizes.keys,
                "offset": call.offset,
                **_reads(record, call, kinds[index]),
                "picture": picture(call, chosen, rows, numbers),
                "series": series(call, chosen, rows, numbers),
            }
            for index, call in enumerate(calls)
        ],
        "heads": [
            {"call": index, "head": head, "values": values[index][head], "roles": roles[index][head]}
            for index, head in heads
        ],
    }


def _reads(record: Record, call: Call, section: str) -> dict[str, Any]:
    """Which text the queries and the keys of a call are, and the place of query 0 in its text."""
    query_text, key_text = texts_of(record, section)
    return {
        "query_text": query_text,
        "key_text": key_text,
        "origin": 0 if section == CROSS else max(0, call.offset),
    }


def _labels(calls: Sequence[Call], kinds: Sequence[str], kind: str) -> dict[int, str]:
    """Short names of the calls of one section: the number in the layer's name that tells them apart, else a count."""
    places = [index for index, section in enumerate(kinds) if section == kind]
    numbers = [re.findall(r"\d+", calls[index].layer) for index in places]
    # The column of numbers that differs everywhere is that of the layers; others count what all layers have.
    for column in zip(*numbers, strict=False):
        if len(set(column)) == len(places):
            return dict(zip(places, column, strict=True))
    return {index: str(i) for i, index in enumerate(places)}


def _values(calls: Sequence[Call], rows: int) -> tuple[list[str], list[list[list[list[float | None]]]]]:
    """Names of the table's columns, and their values by call, head and row of the batch; None where not known."""
    # Row by row, as a mean over the batch would mix texts.
    several = [
        [sums(_one_row(call, row)) if countable(call) else {} for row in range(rows)] for call in calls
    ]
    known = {name for of_rows in several for summed in of_rows for name in summed}
    if not any(call.parameters.get("sink_logit") for call in calls):
        known -= {"sink"}  # 0 everywhere, as there is none
    columns = [
        name
        for name in names_of(summed for of_rows in several for summed in of_rows)
        if name in known - {"argmax"}
    ]
    # What compares across layers stands first; the mean of lse says the least. A mean of argmax would say nothing.
    columns.sort(key=lambda name: (name == "lse") - (name in SHARES))
    values = []
    for call, of_rows in zip(calls, several, strict=True):
        by_row = [means(summed, columns, call.sizes.heads) for summed in of_rows]
        values.append(
            [
                [[_finite(float(averages[name][head])) for name in columns] for averages in by_row]
                for head in range(call.sizes.heads)
            ]
        )
    return columns, values


def _roles(call: Call, rows: int) -> list[list[list[str | float | None] | None]]:
    """Role, score and interval of each head for each row of the batch; None where no role can be told."""
    if not call.uniform or not countable(call):
        return [[None] * rows for _ in range(call.sizes.heads)]
    roles = [of_call(_one_row(call, row)) for row in range(rows)]
    return [[_role(names, head) for names in roles] for head in range(call.sizes.heads)]


def _role(roles: dict[str, Any], head: int) -> list[str | float | None] | None:
    if not math.isfinite(roles["score"][head]):
        return None
    numbers = (_finite(float(roles[name][head])) for name in ("score", "low", "high"))
    return [str(roles["role"][head]), *numbers]


def _one_row(call: Call, row: int) -> Call:
    """The statistics of one row of the batch, as a call of batch 1."""
    tensors = {
        name: getattr(call, name)[row : row + 1]
        for name in (*ROWS, *COLUMNS, *OFFSETS)
        if getattr(call, name) is not None
    }
    groups = {name: mass[row : row + 1] for name, mass in call.groups.items()}
    uniform = {name: chance[row : row + 1] for name, chance in call.uniform.items()}
    return replace(call, **tensors, groups=groups, uniform=uniform)


def _finite(value: float) -> float | None:
    if math.isfinite(value):
        # Five digits are more than the page shows, and shorter than all seventeen.
        return float(f"{value:.5g}")
    return None


def _first(tokens: list[list[str]] | None, rows: int) -> list[list[str]] | None:
    if tokens:
        return [list(map(str, line)) for line in tokens[:rows]]
    return None
