"""The picture of a record for a viewer: which tokens are its patches, and its pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, RecordError
from regard.record import Record
from regard.record.picture import picture_of


@dataclass
class PictureDescription:
    """Which tokens are patches: see `regard.record.picture.Picture`."""

    rows: int
    columns: int
    start: int
    text: str
    words: list[str]


def describe_picture(record: Record) -> PictureDescription | None:
    """The patches of a record's picture; None where it has none, or one that is damaged."""
    # Its route says what is wrong with it; a record is worth looking at without.
    try:
        picture = picture_of(record)
    except RecordError:
        return None
    if picture is None:
        return None
    return PictureDescription(picture.rows, picture.columns, picture.start, picture.text, list(picture.words))


def pixels_of(record: Record) -> dict[str, NDArray[np.uint8]]:
    """`pixels`, uint8 `(height, width, 3)`.

    Raises:
        ArgumentError: the record has no picture. RecordError: it is damaged.
    """
    picture = picture_of(record)
    if picture is None:
        raise ArgumentError("the record must have a picture: regard.record.attach_picture keeps one")
    return {"pixels": picture.pixels()}
