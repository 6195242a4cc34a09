"""The ledger of a survey: a folder of numbered shards, each the profile of a few batches, and the settings of all.

Knows files and what they must be; it does not know how a model is watched. Each file is whole or not there at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import files
from regard.errors import RecordError
from regard.files import sealing
from regard.record import profile_file
from regard.record.profile import Profile

LEDGER = "ledger.json"
FORM = sealing.Form("regard-ledger", 1, "ledger")
SHARD = re.compile(r"shard-(\d{6,})\.safetensors")


@dataclass(frozen=True)
class Ledger:
    """A folder of shards.

    Attributes:
        folder: where they lie. settings: those of the survey, as JSON.
    """

    folder: Path
    settings: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """The ledger that is in a folder.

        Raises:
            RecordError: there is none, or it is damaged or altered.
        """
        try:
            body = sealing.read(folder / LEDGER, FORM, RecordError)
        except FileNotFoundError:
            raise RecordError(f"{folder}: is no ledger of a survey, as it has no {LEDGER}") from None
        settings = body.get("settings")
        if not isinstance(settings, dict):
            raise RecordError(f"{folder / LEDGER}: 'settings' must be of type dict, got {settings!r:.60}")
        return cls(folder, settings)

    @classmethod
    def start(cls, folder: Path, settings: Mapping[str, Any], *, resume: bool = True) -> Ledger:
        """A new ledger in a folder, or the one that is there.

        Args:
            folder: one that is not there yet, an empty one, or that of a ledger. settings: of the survey.
            resume: whether one that is there may be resumed.

        Raises:
            RecordError: the folder holds something else, or a ledger of other settings, or may not be resumed.
        """
        if (folder / LEDGER).exists():
            ledger = cls.open(folder)
            if not resume:
                raise RecordError(
                    f"{folder}: has the ledger of a survey already: go on with it by resume=True, or choose another "
                    "folder"
                )
            ledger.check(settings)
            return ledger
        # What an interrupted write has left does not count.
        try:
            taken = folder.exists() and any(
                files.UNFINISHED.fullmatch(p.name) is None for p in folder.iterdir()
            )
        except OSError as error:
            raise RecordError(f"{folder}: a ledger must be a folder: {error.strerror or error}") from error
        if taken:
            raise RecordError(f"{folder}: is no ledger of a survey: choose a folder that is empty or new")
        content = sealing.document(FORM, {"settings": dict(settings)}, indent=1)
        files.write(folder / LEDGER, content, error=RecordError, what="ledger")
        return cls(folder, settings)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise RecordError unless the settings are the ledger's."""
        for name in sorted({*self.settings, *settings}):
            mine, other = self.settings.get(name), settings.get(name)
            if mine != other:
                raise RecordError(
                    f"{self.folder}: a survey that goes on must have the settings of its ledger, "
                    f"and {name} was {mine!r:.80}, got {other!r:.80}"
                )

    def numbers(self) -> list[int]:
        """The numbers of the shards that are there, rising."""
        # Unfinished files have other names.
        matches = (SHARD.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def read(self, number: int) -> tuple[Profile, list[str]]:
        """A shard, and the digests of the batches in it; of no batches where it is not there.

        Raises:
            RecordError: it is damaged or altered, or is another shard; names the file.
        """
        path = self._path(number)
        if not path.exists():
            return Profile(), []
        layers, numbers, notes = profile_file.read(path)
        digests = notes.get("batches")
        if not isinstance(digests, list) or not all(isinstance(digest, str) for digest in digests):
            raise RecordError(f"{path}: is no shard of a ledger")
        # A file that was copied or renamed would count its batches twice.
        if notes.get("shard") != number:
            raise RecordError(f"{path}: must be shard {number}, and is shard {notes.get('shard')!r:.20}")
        return Profile(layers, **numbers), digests

    def write(self, number: int, profile: Profile, digests: Sequence[str]) -> None:
        """Write a shard: the profile of the batches with these digests.

        Raises:
            RecordError: it cannot be written.
        """
        profile.write(self._path(number), {"shard": number, "batches": list(digests)})

    def profiles(self) -> Iterator[Profile]:
        """The shards, one after the other."""
        for number in self.numbers():
            yield self.read(number)[0]

    def profile(self) -> Profile:
        """All shards merged, of which two are in memory at a time."""
        merged = Profile()
        for shard in self.profiles():
            merged = merged.merge(shard)
        return merged

    def _path(self, number: int) -> Path:
        return self.folder / f"shard-{number:06}.safetensors"
