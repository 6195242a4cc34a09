"""Progress as one JSON document: what a learner takes away, and brings back. Knows no database."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, get_args

from regard.errors import ArgumentError
from regard.learn.store.progress import ROWS, LessonState, Progress, Row, keyed

FORMAT, VERSION = "regard-progress", 1
# Characters of one text, rows of one kind: far beyond what a learner writes, and still read at once.
MOST_TEXT, MOST_ROWS = 100_000, 100_000
# Characters of names and keys, as the columns of the database have them.
MOST_NAME = 200
NAMES = {"exercise", "card_id", "id", "about", "kind"}


def to_document(progress: Progress) -> dict[str, Any]:
    """Progress as JSON: a list of objects for each kind, times in UTC as ISO 8601."""
    body = {
        name: [_written(row) for row in sorted(getattr(progress, name).values(), key=lambda row: row.at)]
        for name in ROWS
    }
    return {"format": FORMAT, "version": VERSION, **body}


def from_document(document: Any) -> Progress:
    """What `to_document` wrote, checked line by line.

    Raises:
        ArgumentError: it is something else, or a line of it is.
    """
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise ArgumentError(f"the progress must be a document of the format {FORMAT!r}")
    if document.get("version") != VERSION:
        raise ArgumentError(f"the progress must be of version {VERSION}, got {document.get('version')!r:.40}")
    parts = {}
    for name, kind in ROWS.items():
        lines = document.get(name, [])
        if not isinstance(lines, list) or len(lines) > MOST_ROWS:
            raise ArgumentError(f"{name} must be a list of at most {MOST_ROWS} objects")
        parts[name] = keyed([_read(kind, line, f"{name}[{number}]") for number, line in enumerate(lines)])
    return Progress(**parts)


def check_text(value: object, where: str, most: int = MOST_TEXT) -> str:
    """A text that a database can hold.

    Raises:
        ArgumentError: it is none, too long, or has characters that no database stores.
    """
    if not isinstance(value, str) or len(value) > most:
        raise ArgumentError(f"{where} must be a text of at most {most} characters")
    # PostgreSQL stores no NUL, and UTF-8 has no halves of surrogate pairs.
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ArgumentError(f"{where} must have neither the character 0 nor half of a surrogate pair")
    return value


def _written(row: Row) -> dict[str, Any]:
    values = {part.name: getattr(row, part.name) for part in fields(row)}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()
    }


def _read(kind: type[Row], line: Any, where: str) -> Any:
    names = [part.name for part in fields(kind)]
    if not isinstance(line, Mapping) or set(line) != set(names):
        raise ArgumentError(f"{where} must have exactly {', '.join(names)}")
    # Annotations are texts here, and few: each is checked by its own rule.
    kinds = {part.name: str(part.type) for part in fields(kind)}
    return kind(**{name: _value(kinds[name], name, line[name], f"{where}.{name}") for name in names})


def _value(kind: str, name: str, value: Any, where: str) -> Any:
    match kind:
        case "str":
            return check_text(value, where, MOST_NAME if name in NAMES else MOST_TEXT)
        case "bool":
            fits = isinstance(value, bool)
        case "int":
            fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
        case "LessonState":
            fits = value in get_args(LessonState)
        case "datetime":
            return _time(value, where)
        case _:
            fits = isinstance(value, Mapping) and _is_plain(value)
    if not fits:
        raise ArgumentError(f"{where} must be a {kind}, got {value!r:.60}")
    return value


def _time(value: Any, where: str) -> datetime:
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is None:
            raise ValueError("no offset")
        return time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"{where} must be a time with its offset in ISO 8601, got {value!r:.60}"
        ) from error


def _is_plain(value: Any) -> bool:
    """Whether a database can hold it as JSON: finite numbers, texts that can be written, few levels."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, TypeError, RecursionError):
        return False
    return len(text) <= MOST_TEXT and "\\u0000" not in text and _is_finite(value)


def _is_finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case Mapping():
            return all(map(_is_finite, value.values()))
        case list():
            return all(map(_is_finite, value))
    return True
