"""The tiles of all heads of one record, each made once, and their pyramids in files beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from threading import Event
from typing import Any

from regard.errors import RecordError
from regard.files import sealing
from regard.record import Record
from regard.record.folder import FORM, MAX_TRIES, RECORD
from regard.statistics.observation import check_index
from regard.web.tiles import pyramid_file
from regard.web.tiles.head import HeadTiles
from regard.web.tiles.map_tiles import MapTiles
from regard.web.tiles.protocol import Tiles

# Beside the files of a record.
FOLDER = "pyramids"


class RecordTiles:
    """The tiles of every head of a record; safe to ask from several threads.

    Args:
        record: in memory, or mapped from its folder.
        folder: where finished pyramids are kept and found; None: they live as long as this does.
        seal: what tells the record from every other, which a pyramid must have too.
    """

    def __init__(self, record: Record, folder: Path | None = None, seal: str = "") -> None:
        self.record, self.folder, self.seal = record, folder, seal
        self._heads: dict[tuple[int, int, int], Tiles] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: str | PathLike[str], pyramids: Path | None = None) -> RecordTiles:
        """Those of a saved record, which is mapped and not read: what nobody looks at stays on the disk.

        Args:
            path: the record's folder. pyramids: where its pyramids are; None: in `pyramids` within it.

        Raises:
            RecordError: no record, or one that is damaged, too new or hostile.
            ArgumentError: no path.
        """
        for _ in range(MAX_TRIES):
            seal, record = _seal(path), Record.load(path, mapped=True)
            # Replaced in between, the pyramids of one record would be taken for the other's.
            if _seal(path) == seal:
                return cls(record, pyramids or Path(path) / FOLDER, seal)
        raise RecordError(
            f"{path}: must stay while it is opened, and other processes save there all the time"
        )

    def head(self, call: int, head: int, batch: int = 0) -> Tiles:
        """The tiles of one head of one row of the batch of one call.

        Raises:
            ArgumentError: there is no such call, head or row.
        """
        check_index("call", call, len(self.record))
        one = self.record[call]
        check_index("head", head, one.sizes.heads)
        check_index("batch", batch, one.sizes.batch)
        index = (call % len(self.record), head % one.sizes.heads, batch % one.sizes.batch)
        with self._lock:
            if index not in self._heads:
                self._heads[index] = self._open(*index)
            return self._heads[index]

    def prepare(
        self,
        heads: Iterable[tuple[int, int, int]] | None = None,
        progress: Callable[[float], object] | None = None,
        *,
        cancel: Event | None = None,
    ) -> None:
        """Make the pyramids of heads whose vectors were kept, and keep them in the folder, one after the other.

        Args:
            heads: (call, head, row of the batch) of each; None: all of them.
            progress: is told the share that is done, from 0 to 1.
            cancel: set, the work ends with CanceledError; heads that are finished stay.
        """
        indices = list(heads or self._places())
        for done, index in enumerate(indices):
            tiles = self.head(*index)
            if not isinstance(tiles, HeadTiles):
                continue

            def report(share: float, done: int = done) -> None:
                if progress is not None:
                    progress((done + share) / len(indices))

            if not tiles.pyramid.complete:
                tiles.prepare(report, cancel=cancel)
                if self.folder is not None:
                    pyramid_file.save(tiles.pyramid, self.folder, _name(index), self._about(index))
            report(1.0)

    def _places(self) -> Iterable[tuple[int, int, int]]:
        for index, call in enumerate(self.record):
            for batch in range(call.sizes.batch):
                yield from ((index, head, batch) for head in range(call.sizes.heads))

    def _open(self, call: int, head: int, batch: int) -> Tiles:
        one = self.record[call]
        if one.query is None or one.key is None or one.spec is None:
            return MapTiles(one, head, batch)
        index, pyramid = (call, head, batch), None
        if self.folder is not None and one.sizes.queries and one.sizes.keys:
            about = self._about(index)
            pyramid = pyramid_file.read(self.folder, _name(index), about, one.sizes.queries, one.sizes.keys)
        return HeadTiles(one, head, batch, pyramid)

    def _about(self, index: tuple[int, int, int]) -> dict[str, Any]:
        return {"record": self.seal, "call": index[0], "head": index[1], "batch": index[2]}


def _seal(path: str | PathLike[str]) -> str:
    """The digest of a record's data, by its `record.json`; "" where it is for `Record.load` to say what is wrong."""
    try:
        body = sealing.read(Path(path) / RECORD, FORM, RecordError)
        return str(body["files"]["statistics"]["sha256"])
    except (OSError, RecordError, KeyError, TypeError):
        return ""


def _name(index: tuple[int, int, int]) -> str:
    call, head, batch = index
    return f"call-{call}-head-{head}-batch-{batch}"
