"""The texts that `regard survey` reads: lines or paragraphs of a file, files of a folder, a column of a Parquet file.

Knows files; it does not know what is done with a text. No more than one text is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ArgumentError, require
from regard.statistics.observation import close_to

# Rows of a Parquet file that are read together.
ROWS = 256
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Texts:
    """Texts that can be read again and again.

    Attributes:
        path: of the file or folder. form: "lines", "paragraphs", "files" or "parquet".
        count: how many texts there are. column: of a Parquet file.
    """

    path: Path
    form: str
    count: int
    column: str = ""

    @classmethod
    def of(cls, path: Path, column: str | None = None) -> Texts:
        """What a path leads to.

        Args:
            path: a Parquet file, by its suffix; a folder, whose files are a text each; any other file, whose paragraphs
                are a text each where it has blank lines between them, else its lines.
            column: of a Parquet file; None: "text", or its only column of strings.

        Raises:
            ArgumentError: nothing that can be read is there, no text, or no such column.
        """
        try:
            if path.is_dir():
                texts = cls(path, "files", len(_files(path)))
            elif path.suffix.lower() in PARQUET:
                return cls._of_parquet(path, column)
            else:
                texts = cls._of_file(path)
        except OSError as error:
            raise ArgumentError(
                f"--texts must be a file or folder that can be read, got {str(path)!r}: {error.strerror}"
            ) from error
        if column is not None:
            raise ArgumentError(f"--column must be left out where --texts is no Parquet file, got {column!r}")
        if not texts.count:
            raise ArgumentError(f"--texts must hold at least one text, and {str(path)!r} holds none")
        return texts

    @classmethod
    def _of_file(cls, path: Path) -> Texts:
        lines = paragraphs = 0
        before = ""
        for line in _lines(path):
            if line.strip():
                lines += 1
                paragraphs += not before.strip()
            before = line
        # A blank line at the end alone parts nothing.
        if paragraphs > 1:
            return cls(path, "paragraphs", paragraphs)
        return cls(path, "lines", lines)

    @classmethod
    def _of_parquet(cls, path: Path, column: str | None) -> Texts:
        parquet, types = require("pyarrow.parquet", extra="table"), require("pyarrow.types", extra="table")
        try:
            file = parquet.ParquetFile(path)
        # A hostile or damaged file: pyarrow has errors of its own.
        except Exception as error:
            raise ArgumentError(
                f"--texts must be a Parquet file that can be read, got {str(path)!r}: {error}"
            ) from error
        with file:
            fields = {field.name: field.type for field in file.schema_arrow}
            strings = [
                n for n, kind in fields.items() if types.is_string(kind) or types.is_large_string(kind)
            ]
            if column is None:
                column = "text"
                if len(strings) == 1:
                    column = strings[0]
            if column not in strings:
                raise ArgumentError(
                    f"--column must be a column of strings of {str(path)!r}, got {column!r}; "
                    f"{close_to(column, strings)}"
                )
            if not file.metadata.num_rows:
                raise ArgumentError(f"--texts must hold at least one text, and {str(path)!r} has no row")
            return cls(path, "parquet", file.metadata.num_rows, column)

    def __iter__(self) -> Iterator[str]:
        if self.form == "files":
            for path in _files(self.path):
                # What is no UTF-8 is handed on as it is, and fails as a text.
                yield path.read_text(encoding="utf-8", errors="surrogateescape")
        elif self.form == "lines":
            yield from (line.rstrip("\r\n") for line in _lines(self.path) if line.strip())
        elif self.form == "paragraphs":
            yield from self._paragraphs()
        else:
            yield from self._rows()

    def _paragraphs(self) -> Iterator[str]:
        together: list[str] = []
        for line in _lines(self.path):
            if line.strip():
                together.append(line)
            elif together:
                yield "".join(together).rstrip("\r\n")
                together = []
        if together:
            yield "".join(together).rstrip("\r\n")

    def _rows(self) -> Iterator[str]:
        with require("pyarrow.parquet", extra="table").ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=ROWS, columns=[self.column]):
                values: list[Any] = batch.column(0).to_pylist()
                # A row without a text is one that fails, and its number stays its own.
                yield from ("" if value is None else value for value in values)


def _files(folder: Path) -> list[Path]:
    """The files below a folder, in the order of their names; hidden ones are none."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        yield from file
