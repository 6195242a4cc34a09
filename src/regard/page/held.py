"""What the front end asks a server for, written down for a page: descriptions, maps, series, next tokens.

Each row of the batch is a record of its own there, so that two texts can be compared like two records. Knows what is
held; how finely is `budget`'s to say, and how it is packed `encode`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from regard.errors import ArgumentError, RecordError
from regard.files.versions import own_version
from regard.page import maps
from regard.page.budget import POINTS_F16, Fineness, choices, fits, points_of, step_of
from regard.page.encode import Numbers, whole
from regard.record import Call, Record
from regard.statistics.observation import COLUMNS, OFFSETS, ROWS
from regard.web.describe import Description, describe
from regard.web.next_tokens import NextTokens
from regard.web.overview import one_row as row_of_map
from regard.web.series import series

# Of these a page tells first, the others where there is room; a place is no number to draw.
FIRST, LEFT_OUT = ("entropy", "received", "max_weight"), ("argmax",)
# Next tokens of each position: as many as are shown.
NEXT = 6
# Characters of a text by which one of several is told from the others.
TITLE = 40


@dataclass
class Held:
    """What a page holds of a record.

    Attributes:
        index: JSON that describes the arrays; the front end reads it.
        descriptions: of each row of the batch that is held, the first rows of it.
        fineness, step: how finely: weights, and tokens of a point of the series.
        coarse: names of the series that are held in `log8`.
    """

    index: dict[str, Any]
    numbers: Numbers
    descriptions: list[Description]
    fineness: Fineness
    step: int
    coarse: list[str] = field(default_factory=list)

    @property
    def content(self) -> bytes:
        """Index and numbers, as the front end reads them."""
        return whole(self.index, self.numbers)

    @property
    def pictures(self) -> list[dict[str, Any]]:
        """The maps of all calls of the first text, without those that there are not."""
        return [call["map"] for call in self.index["texts"][0]["calls"] if call["map"]]


def hold(record: Record, rows: int, title: str, next_tokens: NextTokens | None = None) -> Held:
    """Everything that a page of a record holds.

    Args:
        rows: how many rows of the batch. title: its heading. next_tokens: of the first row.
    """
    descriptions = [_describe(record, row, title) for row in range(rows)]
    numbers, step = Numbers(), step_of(record.calls, rows)
    held = Held({}, numbers, descriptions, Fineness("", 0), step)
    texts: list[dict[str, Any]] = [
        {"calls": [{"map": None, "series": {}} for _ in record], "next": None} for _ in range(rows)
    ]
    if next_tokens is not None:
        texts[0]["next"] = _next(next_tokens, numbers)
    _first_series(record, held, texts)
    _maps(record, held, texts)
    _other_series(record, held, texts)
    for row, text in enumerate(texts):
        text["description"] = asdict(_shown(descriptions[row], text))
        text["entry"] = _entry(descriptions[row], text, row == 0 and next_tokens is not None)
    held.index = {"version": own_version(), "texts": texts}
    return held


def one_row(call: Call, row: int) -> Call:
    """The statistics of one row of the batch, as those of a call of batch 1."""
    tensors = {
        name: getattr(call, name)[row : row + 1]
        for name in (*ROWS, *COLUMNS, *OFFSETS, "attends", "padded", "row_sum")
        if getattr(call, name) is not None
    }
    groups = {name: mass[row : row + 1] for name, mass in call.groups.items()}
    uniform = {name: chance[row : row + 1] for name, chance in call.uniform.items()}
    return replace(call, **tensors, groups=groups, uniform=uniform)


def _describe(record: Record, row: int, title: str) -> Description:
    """The description of one row of the batch."""
    single, heading = record, title
    batch = max(call.sizes.batch for call in record)
    if batch > 1:
        tokens = [_row(lines, row) for lines in (record.tokens, record.source_tokens)]
        calls = [one_row(call, row) for call in record]
        single = Record(calls, tokens[0], tokens[1], record.info, dict(record.unseen))
        words = " ".join("".join((tokens[1] or tokens[0] or [[""]])[0]).split())[:TITLE]
        heading = f"{row}: {words}"
    described = describe(single, f"text-{row}", heading)
    # What the page says of them stands in its header and footer.
    described.info = {}
    for call in described.calls:
        call.batch = 1
    return described


def _row(lines: list[list[str]] | None, row: int) -> list[list[str]] | None:
    if lines is None or row >= len(lines):
        return None
    return [list(map(str, lines[row]))]


def _shown(description: Description, text: dict[str, Any]) -> Description:
    """The description of what the page can answer: exact weights and series that it holds."""
    names: dict[str, None] = {}
    for call, part in zip(description.calls, text["calls"], strict=True):
        picture = part["map"]
        call.vectors = picture is not None and picture["cell"] == 1
        call.map_cell = None
        if picture is not None:
            call.map_cell = picture["cell"]
        names |= dict.fromkeys(part["series"])
    description.row_statistics = [name for name in description.row_statistics if name in names]
    description.column_statistics = [name for name in description.column_statistics if name in names]
    # What a number means is said of those that are there.
    names |= {name: None for call in description.calls for name in (*call.means, *call.scores)}
    description.statistics = {name: words for name, words in description.statistics.items() if name in names}
    return description


def _entry(description: Description, text: dict[str, Any], has_next: bool) -> dict[str, Any]:
    longest = max((max(call.queries, call.keys) for call in description.calls), default=0)
    return {
        "id": description.id,
        "title": description.title,
        "model": "",
        "tokens": longest,
        "calls": len(text["calls"]),
        "kind": "record",
        "next_tokens": has_next,
    }


def _maps(record: Record, held: Held, texts: list[dict[str, Any]]) -> None:
    """The maps of all calls, as finely as there is room for."""
    numbers, start = held.numbers, held.numbers.size
    before, tried = numbers.deflated(), list(choices(record.calls, len(texts)))
    for choice in tried:
        for row, text in enumerate(texts):
            for call, part in zip(record, text["calls"], strict=True):
                part["map"] = _map(call, row, choice, numbers)
        held.fineness = choice
        if choice is tried[-1] or fits(numbers, start, choice.most - before):
            return


def _map(call: Call, row: int, choice: Fineness, numbers: Numbers) -> dict[str, Any] | None:
    """One call's map; None where there is none."""
    if choice.exact and maps.is_exact(call):
        return maps.write(call, row, maps.weights_of(call, row), choice.exact, numbers)
    if maps.has_map(call) and call.map is not None:
        return maps.write(call, row, row_of_map(call.map, row, choice.side), "log8", numbers)
    # Where only the vectors are there, cells are made of the weights.
    if maps.is_exact(call):
        pooled = row_of_map(maps.weights_of(call, row), 0, choice.side)
        return maps.write(call, row, pooled, "log8", numbers)
    return None


def _first_series(record: Record, held: Held, texts: list[dict[str, Any]]) -> None:
    """Entropy, received attention and the largest weight of every query."""
    few = points_of(record.calls, len(texts)) <= POINTS_F16
    for name in FIRST:
        code = "f16"
        if not few and name != "entropy":
            code = "log8"
        added = _add(record, held, texts, name, code)
        if added and code == "log8":
            held.coarse.append(name)


def _other_series(record: Record, held: Held, texts: list[dict[str, Any]]) -> None:
    """The other statistics along the text, one after the other, as long as there is room."""
    numbers = held.numbers
    # Exact weights may take more than all numbers of a long text, and leave the rest what is left of that.
    room = held.fineness.most - numbers.deflated()
    described, left_out = held.descriptions[0], {*FIRST, *LEFT_OUT}
    # Without a learned sink nothing is swallowed.
    if not any(call.parameters.get("sink_logit") for call in record):
        left_out.add("sink")
    names = [*described.row_statistics, *described.column_statistics]
    for name in [name for name in names if name not in left_out]:
        start = numbers.size
        if not _add(record, held, texts, name, "f16"):
            continue
        if not fits(numbers, start, room):
            for text in texts:
                for part in text["calls"]:
                    part["series"].pop(name, None)
            return
        room -= numbers.deflated(start)


def _add(record: Record, held: Held, texts: list[dict[str, Any]], name: str, code: str) -> bool:
    """Add one statistic of all calls; whether some call has it."""
    added = False
    for row, text in enumerate(texts):
        for call, part in zip(record, text["calls"], strict=True):
            for values in _series(call, name, held.step, row):
                part["series"][name] = held.numbers.add(values, code) | {"cell": held.step}
                added = True
    return added


def _series(call: Call, name: str, step: int, row: int) -> Iterator[np.ndarray]:
    """The means of a statistic, `(heads, points)`; nothing where the call has it not."""
    length = call.sizes.queries
    if name in COLUMNS:
        length = call.sizes.keys
    try:
        arrays, _ = series(call, name, max(1, -(-length // step)), row)
    # Not every call has every statistic.
    except (ArgumentError, RecordError):
        return
    yield arrays["mean"].numpy()


def _next(next_tokens: NextTokens, numbers: Numbers) -> dict[str, Any]:
    """The likeliest next tokens of every position."""
    token, probability = (next_tokens.arrays[name][:, :NEXT] for name in ("token", "probability"))
    known = sorted(set(token.ravel().tolist()) - {-1})
    return {
        "token": numbers.add(token, "i32"),
        "probability": numbers.add(probability, "f32"),
        "texts": {str(number): next_tokens.texts[number] for number in known},
    }
