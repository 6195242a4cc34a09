"""Tables as files: CSV that a spreadsheet does not compute, Parquet, and the columns that a viewer sends for one."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from regard.errors import ArgumentError, require

if TYPE_CHECKING:
    from pandas import DataFrame

Format = Literal["csv", "parquet"]
Kind = Literal["text", "number", "whole", "flag"]

# Rows of a table that a viewer sends, and its columns.
MOST = 1 << 20
MOST_COLUMNS = 256
# What a spreadsheet takes for the beginning of a formula, full-width signs among them. It skips blanks before a sign:
# \ufeff is one too, as in JavaScript.
FORMULA = re.compile(r"[\s\ufeff]*[=+\-@＝＋－＠]|['\t\r\n]")
MARK = "'"
PACKED: dict[Kind, Any] = {"number": "<f4", "flag": "u1"}


@dataclass(frozen=True)
class Column:
    """A column as a viewer sends it: what repeats is sent once.

    Attributes:
        kind: "text", "number" (float64), "whole" (int64, with gaps Int64) or "flag" (bool).
        values: of the column, None where there is none; then `data` has them.
        data: base64 of them: little-endian float32 of a "number", a byte each of a "flag".
        repeat: how many rows in a row have one value. After the last value it begins again with the first.
    """

    name: str
    kind: Kind
    values: list[str | float | int | bool | None] | None = None
    data: str | None = None
    repeat: int = 1


def frame(columns: list[Column], rows: int) -> DataFrame:
    """The columns as one table.

    Args:
        columns: at most 256, each of another name. rows: at most 2²⁰.

    Raises:
        ArgumentError: too many rows or columns, a name twice, a column that does not fill the rows evenly, or whose
            values are not of its kind.
        MissingPackageError: pandas is not installed.

    Example:
        >>> pairs = [Column("query", "whole", [0, 1], repeat=2), Column("key", "whole", [0, 1])]
        >>> frame(pairs, 4).to_dict("list")
        {'query': [0, 0, 1, 1], 'key': [0, 1, 0, 1]}
    """
    pandas = require("pandas", extra="table")
    if not 0 <= rows <= MOST:
        raise ArgumentError(f"a table must have at most {MOST} rows, got {rows}")
    if not 1 <= len(columns) <= MOST_COLUMNS:
        raise ArgumentError(f"a table must have from 1 to {MOST_COLUMNS} columns, got {len(columns)}")
    if len({encodable(column.name) for column in columns}) < len(columns):
        raise ArgumentError("the columns of a table must have different names, got one twice")
    return pandas.DataFrame({encodable(column.name): _filled(column, rows) for column in columns})


def written(table: DataFrame, form: Format) -> bytes:
    """A table as a file.

    Args:
        table: of any columns.
        form: "csv", in which texts are guarded by `guarded`; or "parquet", in which they are as they are.

    Raises:
        MissingPackageError: pyarrow is not installed.
    """
    # In memory: of a view that was asked for, nothing is left on the disk.
    content = BytesIO()
    if form == "csv":
        safe = table.rename(columns=guarded)
        for name in safe.select_dtypes(include=["object", "string"]).columns:
            safe[name] = safe[name].map(guarded)
        safe.to_csv(content, index=False)
    else:
        require("pyarrow", extra="table")
        table.to_parquet(content, index=False)
    return content.getvalue()


def encodable(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair, which no file can hold: a text that was cut may end so.

    Example:
        >>> encodable("cut \\ud83d") == "cut \\ufffd"
        True
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def guarded(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula: behind an apostrophe, where it begins like one.

    So is a text that begins with an apostrophe: without the first apostrophe every text is what it was. Anything but a
    text stays as it is.

    Example:
        >>> guarded("=1+1"), guarded("word"), guarded("'tis"), guarded(-1)
        ("'=1+1", 'word', "''tis", -1)
    """
    if not isinstance(value, str):
        return value
    if FORMULA.match(value):
        return MARK + value
    return value


def _filled(column: Column, rows: int) -> Any:
    """All values of a column, as many as there are rows."""
    values = _values(column)
    if column.repeat < 1 or (rows and (not len(values) or rows % (len(values) * column.repeat))):
        raise ArgumentError(
            f"column {column.name!r} must fill {rows} rows evenly, "
            f"got {len(values)} values, {column.repeat} times each"
        )
    if not rows:
        return values[:0]
    index = np.tile(np.repeat(np.arange(len(values)), column.repeat), rows // len(values) // column.repeat)
    return values.take(index)


def _values(column: Column) -> Any:
    """The values that were sent, by their kind."""
    pandas = require("pandas", extra="table")
    if (column.values is None) == (column.data is None):
        raise ArgumentError(f"column {column.name!r} must have either values or data")
    if column.data is not None:
        unpacked = _unpacked(column)
        return pandas.array(unpacked, dtype=unpacked.dtype)
    assert column.values is not None
    kinds: dict[Kind, Any] = {"text": str, "number": (int, float), "whole": int, "flag": bool}
    for value in column.values:
        # True is an int to Python, and no count of anything.
        truth = isinstance(value, bool) != (column.kind == "flag")
        if value is not None and (truth or not isinstance(value, kinds[column.kind])):
            raise ArgumentError(
                f"column {column.name!r} must have values of the kind {column.kind}, got {value!r}"
            )
    gaps = None in column.values
    dtypes = {"text": "str", "number": "float64", "whole": "int64", "flag": "bool"}
    if gaps:
        dtypes |= {"whole": "Int64", "flag": "boolean"}
    values = column.values
    if column.kind == "text":
        values = [value and encodable(str(value)) for value in values]
    try:
        return pandas.array(values, dtype=dtypes[column.kind])
    except (OverflowError, ValueError) as error:
        raise ArgumentError(f"column {column.name!r} must have numbers of at most 64 bits") from error


def _unpacked(column: Column) -> np.ndarray:
    assert column.data is not None
    if column.kind not in PACKED:
        raise ArgumentError(
            f"column {column.name!r} must have values: only numbers and flags are sent as data"
        )
    try:
        values = np.frombuffer(base64.b64decode(column.data, validate=True), PACKED[column.kind])
    except (ValueError, binascii.Error) as error:
        raise ArgumentError(
            f"column {column.name!r} must have data in base64, of whole numbers of bytes"
        ) from error
    if column.kind == "flag":
        return values.astype(bool)
    return values.astype(np.float32)
