"""What is open: records to look at, and models that can be run. Only what the user named at start ever is."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from regard.analysis.flow import Rollout
from regard.errors import ArgumentError
from regard.explorer.limits import Limits
from regard.explorer.recent import Recent
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
    """The records, models and histories of one server; safe to ask from several threads."""

    def __init__(self, models: Iterable[Model] = (), limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.models = {model.id: model for model in models}
        self.trainings = Trainings()
        self._records: dict[str, OpenRecord] = {}
        self._next = 1
        self._lock = threading.Lock()

    def add(self, tiles: RecordTiles, title: str = "", code: str = "") -> OpenRecord:
        """Open a record, under an identity of its own.

        Args:
            tiles: of its heads. title: for people; by default the model's name. code: see `OpenRecord`.

        Raises:
            ArgumentError: too many are open.
        """
        with self._lock:
            self.check_room()
            # Counted on when records are closed: an old address must not show another record.
            identity = f"r{self._next}"
            self._next += 1
        # Now, and not when it is asked for: of a long text the means take a second or two.
        described = describe(tiles.record, identity, title)
        opened = OpenRecord(identity, described.title, tiles, described, code)
        self._records[identity] = opened
        return opened

    def check_room(self) -> None:
        """Raise unless one more record may be opened.

        Raises:
            ArgumentError: too many are open.
        """
        if len(self._records) >= self.limits.records:
            raise ArgumentError(f"at most {self.limits.records} records may be open: close one first")

    def close(self, identity: str) -> None:
        """Forget a record.

        Raises:
            NotOpenError: it is not open.
        """
        with self._lock:
            self[identity]
            del self._records[identity]

    def records(self) -> list[OpenRecord]:
        """All of them, in the order in which they were opened."""
        return list(self._records.values())

    def __getitem__(self, identity: str) -> OpenRecord:
        try:
            return self._records[identity]
        except KeyError:
            known = ", ".join(self._records) or "none"
            raise NotOpenError(f"the record must be an open one ({known}), got {identity[:100]!r}") from None

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
