"""What a request may ask for at most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on requests and on what is kept; each is told to the front end.

    Attributes:
        text: characters of a text to read.
        image: bytes of a picture to read.
        upload: bytes of a whole request: a picture in base64, and the rest.
        computing: tiles, rows and windows that are computed at once.
        waiting: of them, how many may wait for their turn.
        runs: runs that may wait in line.
        records: records that are open.
        stored: bytes on the disk of the records that runs gave, together.
    """

    # A text of 131 072 tokens has about 600 000 characters.
    text: int = 2_000_000
    image: int = 8_000_000
    upload: int = 16_000_000
    computing: int = 2
    waiting: int = 512
    runs: int = 16
    records: int = 64
    # As good as none: a disk of one's own is for its owner to fill.
    stored: int = 1 << 50


# Of each visitor, where there are several; two longest texts of the embedded model take 2 GB each.
FOR_VISITORS = Limits(text=600_000, image=4_000_000, waiting=64, runs=4, records=16, stored=4 << 30)
