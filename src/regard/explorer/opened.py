"""What is open: records to look at, and models that can be run. Only what was named at start, and what runs gave."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

from regard.analysis.flow import Rollout
from regard.errors import ArgumentError
from regard.explorer.limits import Limits
from regard.explorer.recent import Recent
from regard.explorer.space import Space, size_of
from regard.explorer.trainings import Trainings
from regard.record import Record
from regard.record.call import Call
from regard.web.changes import HeadSetting
from regard.web.check import Check, check
from regard.web.describe import Description, describe
from regard.web.next_tokens import NextTokens
from regard.web.tiles import RecordTiles

# Flows of a record that are remembered, of some numbers for each token and layer.
FLOWS = 4


class NotOpenError(ArgumentError):
    """A record, call, head or job that is not there."""


@dataclass(frozen=True)
class Model:
    """A model that can be run.

    Attributes:
        id: what requests call it by. title: its name for people.
        kind: "embedded", "task" or "transformers".
        takes: "text" or "image".
        source: what the worker loads it by: a folder, a Hugging Face name, a task.
        example: a text to begin with.
    """

    id: str
    title: str
    kind: Literal["embedded", "task", "transformers"]
    takes: Literal["text", "image"] = "text"
    source: str = ""
    example: str = ""


@dataclass(eq=False)
class OpenRecord:
    """A record and what is known of where it comes from.

    Attributes:
        tiles: of all its heads.
        description: what a viewer is told of it first.
        code: lines of Python after which `record` is this one.
        model, text: what made it here; None and "" where it was opened.
        base, settings: the record without the changes, and the changes, where there are some.
        next_tokens: where the model has a language head.
        flows: of single tokens, the last few that were asked for.
        folder: what goes with the record when it is closed, and its size in bytes; None where it lies elsewhere.
    """

    id: str
    title: str
    tiles: RecordTiles
    description: Description
    code: str
    model: Model | None = None
    text: str = ""
    base: OpenRecord | None = None
    settings: tuple[HeadSetting, ...] = ()
    next_tokens: NextTokens | None = None
    flows: Recent[Rollout] = field(default_factory=lambda: Recent(FLOWS), repr=False)
    folder: Path | None = None
    size: int = 0
    _check: Check | None = field(default=None, repr=False)
    # Of its own, as tiles must not wait while heads are compared.
    _checking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def record(self) -> Record:
        """The record itself."""
        return self.tiles.record

    def check(self) -> Check:
        """The findings, worked out once."""
        with self._checking:
            if self._check is None:
                self._check = check(self.record)
            return self._check

    def call(self, index: int) -> Call:
        """One call.

        Raises:
            NotOpenError: there is none of this number.
        """
        if not 0 <= index < len(self.record):
            raise NotOpenError(f"the call must be from 0 to {len(self.record) - 1}, got {index}")
        return self.record[index]


class Opened:
    """The records, models and histories that somebody can look at; safe to ask from several threads.

    Args:
        models: those that can be run.
        limits: on what may be open.
        shared: what is offered to everybody, to look at and not to close; its models and histories come along.
        space: on the disk, of everybody's records together; None: no limit.
    """

    def __init__(
        self,
        models: Iterable[Model] = (),
        limits: Limits | None = None,
        shared: Opened | None = None,
        space: Space | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.models = {model.id: model for model in models}
        self.trainings = Trainings()
        self._shared, self._space = shared, space or Space()
        # Counted on when records are closed: an old address must not show another record, and nobody else's either.
        self._numbers = count(1)
        if shared is not None:
            self.models = shared.models | self.models
            self.trainings, self._numbers = shared.trainings, shared._numbers
        self._records: dict[str, OpenRecord] = {}
        self._lock = threading.Lock()

    def add(
        self, tiles: RecordTiles, title: str = "", code: str = "", folder: Path | None = None
    ) -> OpenRecord:
        """Open a record, under an identity of its own.

        Args:
            tiles: of its heads. title: for people; by default the model's name. code, folder: see `OpenRecord`.

        Raises:
            ArgumentError: too many are open, or they are too large.
        """
        size = size_of(folder)
        with self._lock:
            self.check_room()
            self._check_size(size)
            self._space.take(size)
            identity = f"r{next(self._numbers)}"
        # Now, and not when it is asked for: of a long text the means take a second or two.
        try:
            described = describe(tiles.record, identity, title)
        except BaseException:
            self._space.free(size)
            raise
        opened = OpenRecord(identity, described.title, tiles, described, code, folder=folder, size=size)
        self._records[identity] = opened
        return opened

    def check_room(self) -> None:
        """Raise unless one more record may be opened.

        Raises:
            ArgumentError: too many are open.
        """
        if len(self._records) >= self.limits.records:
            raise ArgumentError(f"at most {self.limits.records} records may be open: close one first")
        self._check_size(0)

    def _check_size(self, size: int) -> None:
        together = size + sum(one.size for one in self._records.values())
        if together > self.limits.stored:
            raise ArgumentError(
                f"your records may take at most {self.limits.stored >> 20} MiB together, and would take "
                f"{together >> 20}: close one first, or run a shorter text"
            )

    def close(self, identity: str) -> None:
        """Forget a record, and delete its folder if it came with one.

        Raises:
            NotOpenError: it is not open.
            ArgumentError: it is offered to everybody.
        """
        with self._lock:
            self[identity]
            if identity not in self._records:
                raise ArgumentError(
                    f"the record must be one of your own, got {identity}, which everybody looks at"
                )
            record = self._records.pop(identity)
        if record.folder is not None:
            shutil.rmtree(record.folder, ignore_errors=True)
        self._space.free(record.size)

    def close_all(self) -> None:
        """Forget all records but those that are offered to everybody."""
        for identity in list(self._records):
            self.close(identity)

    def records(self) -> list[OpenRecord]:
        """All of them, in the order in which they were opened; those that are offered to everybody first."""
        records = list(self._records.values())
        if self._shared is not None:
            records = self._shared.records() + records
        return records

    def is_shared(self, record: OpenRecord) -> bool:
        """Whether a record is offered to everybody."""
        return record.id not in self._records

    def __getitem__(self, identity: str) -> OpenRecord:
        record = self._records.get(identity)
        if record is None and self._shared is not None:
            record = self._shared._records.get(identity)
        if record is None:
            known = ", ".join(one.id for one in self.records()) or "none"
            raise NotOpenError(f"the record must be an open one ({known}), got {identity[:100]!r}")
        return record

    def model(self, identity: str) -> Model:
        """A model that can be run.

        Raises:
            NotOpenError: none is called so.
        """
        if identity not in self.models:
            known = ", ".join(self.models) or "none"
            raise NotOpenError(
                f"the model must be one of those named at start ({known}), got {identity[:100]!r}"
            )
        return self.models[identity]
