"""The forms of files that a corpus may have: lines, JSON lines, Parquet and Arrow tables, and stretches of them.

Knows how a stretch is cut and read; it does not know where files lie. A text belongs to the stretch in which it begins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from regard.errors import ArgumentError, require

OBJECTS = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow",)
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# What the library datasets writes beside its tables: descriptions, and results that it remembers.
BESIDE = ("dataset_info.json", "state.json", "dataset_dict.json")
# Rows of a table that are decoded together.
ROWS = 256
# Bytes that are read at a time to the end of a line.
AHEAD = 1 << 14


@dataclass(frozen=True)
class Text:
    """A text of a corpus.

    Attributes:
        position: where it begins in its file: a byte, or a row. content: the text, or what was there instead.
        error: why it is no text; None where it is one.
    """

    position: int
    content: str
    error: str | None = None

    @property
    def digest(self) -> str:
        """Of its content, 32 digits."""
        # What is no UTF-8 is a text that fails, and must only differ from others.
        content = self.content.encode("utf-8", "surrogatepass")
        return hashlib.sha256(content).hexdigest()[:32]


def counts(name: str) -> bool:
    """Whether a file of this name, below the corpus, holds texts."""
    parts = PurePosixPath(name).parts
    remembered = parts[-1].startswith("cache-") and parts[-1].endswith(ARROW)
    hidden = any(part.startswith((".", "_")) for part in parts)
    return not (hidden or remembered or parts[-1] in BESIDE)


def stretches(system: Any, path: str, size: int, column: str, step: int) -> Iterator[tuple[int, int]]:
    """Where the stretches of a file begin and end, of about `step` bytes of text each.

    Raises:
        ArgumentError: a table that cannot be read, or has no such column of strings.
    """
    form = _suffix(path)
    if form in COMPRESSED:
        yield 0, -1
        return
    if form in PARQUET or form in ARROW:
        try:
            rows, size = _extent(system, path, column)
        # A hostile or damaged file: pyarrow has errors of its own.
        except (OSError, ValueError, KeyError) as error:
            raise ArgumentError(f"{path}: must be a table of texts that can be read: {error}") from error
        step, size = max(1, step * rows // max(1, size)), rows
    for start in range(0, size, step):
        yield start, min(start + step, size)


def read(system: Any, path: str, start: int, stop: int, column: str) -> Iterator[Text]:
    """The texts of a stretch.

    Raises:
        ArgumentError: the file cannot be read.
    """
    form = _suffix(path)
    try:
        if form in PARQUET or form in ARROW:
            yield from _rows(system, path, start, stop, column)
        else:
            objects = _suffix(path.removesuffix(form) if form in COMPRESSED else path) in OBJECTS
            for position, line in _lines(system, path, start, stop):
                if line.strip():
                    yield _object(position, line, column) if objects else Text(position, _decoded(line))
    except Exception as error:
        raise ArgumentError(f"{path}: cannot be read from {start} to {stop}: {error}") from error


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _decoded(line: bytes) -> str:
    # What is no UTF-8 is handed on as it is, and fails as a text.
    return line.decode("utf-8", "surrogateescape").rstrip("\r\n")


def _lines(system: Any, path: str, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a stretch, and the bytes where they do."""
    # From one byte before, so that a line that begins right here is not taken for the end of another.
    position = max(start - 1, 0)
    with system.open(path, "rb", compression="infer" if stop < 0 else None) as file:
        file.seek(position)
        # At once, as each time that a file far away is asked costs a journey.
        content = file.read(stop - position if stop >= 0 else -1)
        if stop >= 0 and not content.endswith(b"\n"):
            content += _rest(file)
    lines = content.split(b"\n")
    if start:
        position += len(lines.pop(0)) + 1
    for line in lines:
        if stop < 0 or position < stop:
            yield position, line
        position += len(line) + 1


def _rest(file: Any) -> bytes:
    """What is left of a line in the middle of which a stretch ends."""
    rest = b""
    while more := file.read(AHEAD):
        rest += more.partition(b"\n")[0]
        if b"\n" in more:
            break
    return rest


def _object(position: int, line: bytes, column: str) -> Text:
    """The text in an object of JSON, or what is wrong with it."""
    whole = _decoded(line)
    try:
        item = json.loads(whole)
    except (ValueError, RecursionError) as error:
        return Text(position, whole, f"the line must be an object of JSON: {error}")
    if not isinstance(item, dict) or not isinstance(item.get(column), str):
        return Text(position, whole, f"the line must be an object of JSON with a string {column!r}")
    return Text(position, item[column])


def _extent(system: Any, path: str, column: str) -> tuple[int, int]:
    """Rows of a table, and bytes of text in them, about."""
    with system.open(path, "rb") as file:
        if _suffix(path) in ARROW:
            rows = sizes = 0
            for batch in _batches(file):
                rows, sizes = rows + len(batch), sizes + batch.column(column).nbytes
            return rows, sizes
        table = require("pyarrow.parquet", extra="table").ParquetFile(file)
        names = table.schema_arrow.names
        if column not in names:
            raise ValueError(f"it has no column {column!r}, only {', '.join(names)}")
        groups = [table.metadata.row_group(number) for number in range(table.metadata.num_row_groups)]
        columns = [group.column(number) for group in groups for number in range(group.num_columns)]
        size = sum(chunk.total_uncompressed_size for chunk in columns if chunk.path_in_schema == column)
        return table.metadata.num_rows, size


def _batches(file: Any) -> Iterable[Any]:
    """The batches of rows of an Arrow stream."""
    return require("pyarrow.ipc", extra="table").open_stream(file)


def _rows(system: Any, path: str, start: int, stop: int, column: str) -> Iterator[Text]:
    """The texts in rows of a table."""
    with system.open(path, "rb") as file:
        if _suffix(path) in ARROW:
            position, batches = 0, _batches(file)
        else:
            table = require("pyarrow.parquet", extra="table").ParquetFile(file)
            position, groups = 0, range(table.metadata.num_row_groups)
            # Groups of rows before the stretch are not decoded at all.
            while position + (rows := table.metadata.row_group(groups[0]).num_rows) <= start:
                position, groups = position + rows, groups[1:]
            batches = table.iter_batches(batch_size=ROWS, row_groups=list(groups), columns=[column])
        for batch in batches:
            if position >= stop:
                return
            if position + len(batch) > start:
                first, last = max(start - position, 0), min(stop - position, len(batch))
                values = batch.column(column).slice(first, last - first).to_pylist()
                for row, value in enumerate(values, position + first):
                    yield _row(row, value, column)
            position += len(batch)


def _row(position: int, value: Any, column: str) -> Text:
    if isinstance(value, str):
        return Text(position, value)
    return Text(position, "", f"row {position} must have a string in {column!r}, got {value!r:.60}")
