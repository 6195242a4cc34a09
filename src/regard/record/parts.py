"""The ledger of a corpus: a folder with its settings and one Parquet file for each stretch of texts that was read.

A file is named by the digest of its stretch: what is there is done, whoever did it; two writers write the same one.
Its rows say which texts were read, with the errors of those that could not be, the sums of every head in plain
columns, and in one row the exact profile. Knows files and what they must be, not how a model is watched.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from os import PathLike
from typing import Any

from regard.errors import RecordError, require
from regard.files import sealing
from regard.files.stores import Store
from regard.record import profile_file
from regard.record.exact import floats
from regard.record.profile import Failure, Profile

SETTINGS = "corpus.json"
FORM = sealing.Form("regard-corpus", 1, "ledger of a corpus")
PART = re.compile(r"part-([0-9a-f]{32})\.parquet")
# In the metadata of a part: where its texts lie.
KEY = b"regard.part"


@dataclass(frozen=True, order=True)
class Part:
    """What the file of a stretch says of itself.

    Attributes:
        source: the file of the texts, below the corpus. start, stop: of the stretch in it.
        digest: of the stretch. texts: how many there are, those that failed among them.
    """

    source: str
    start: int
    stop: int
    digest: str
    texts: int


@dataclass(frozen=True)
class TextRow:
    """A text of a part: where it begins in its file, the digest of its content, and the type and words of its error."""

    position: int
    digest: str
    error_type: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Parts:
    """The ledger in a store.

    Attributes:
        store: where it lies. settings: those of the survey, as JSON.
    """

    store: Store
    settings: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Parts:
        """The ledger that is in a folder.

        Raises:
            RecordError: there is none, or it is damaged or altered.
        """
        store = Store.of(folder)
        try:
            body = sealing.opened(store.read(SETTINGS), FORM)
        except FileNotFoundError:
            raise RecordError(f"{store.folder}: is no ledger of a corpus, as it has no {SETTINGS}") from None
        except ValueError as error:
            raise RecordError(f"{store.folder}/{SETTINGS}: {error}") from error
        settings = body.get("settings")
        if not isinstance(settings, dict):
            raise RecordError(
                f"{store.folder}/{SETTINGS}: 'settings' must be of type dict, got {settings!r:.60}"
            )
        return cls(store, settings)

    @classmethod
    def start(cls, folder: str | PathLike[str], settings: Mapping[str, Any], *, resume: bool = True) -> Parts:
        """A new ledger in a folder, or the one that is there.

        Raises:
            RecordError: the folder holds something else, or a ledger of other settings, or may not be gone on with.
        """
        store = Store.of(folder)
        names = store.names()
        if SETTINGS in names:
            if not resume:
                raise RecordError(
                    f"{store.folder}: has the ledger of a corpus already: go on with it by resume=True, or choose "
                    "another folder"
                )
            ledger = cls.open(folder)
            ledger.check(settings)
            return ledger
        if names:
            raise RecordError(
                f"{store.folder}: is no ledger of a corpus: choose a folder that is empty or new"
            )
        store.write(SETTINGS, sealing.document(FORM, {"settings": dict(settings)}, indent=1))
        return cls(store, settings)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise RecordError unless the settings are the ledger's."""
        for name in sorted({*self.settings, *settings}):
            mine, other = self.settings.get(name), settings.get(name)
            if mine != other:
                raise RecordError(
                    f"{self.store.folder}: a survey that goes on must have the settings of its ledger, "
                    f"and {name} was {mine!r:.80}, got {other!r:.80}"
                )

    def digests(self) -> set[str]:
        """The digests of the parts that are there."""
        matches = (PART.fullmatch(name) for name in self.store.names())
        return {match[1] for match in matches if match}

    def has(self, digest: str) -> bool:
        """Whether the part of this digest is there now."""
        return self.store.has(_name(digest))

    def write(self, part: Part, profile: Profile, rows: Sequence[TextRow]) -> None:
        """Write a part, whole or not at all.

        Args:
            part: what it says of itself. profile: of its texts, whose failures are numbered from 0 in the part.
            rows: its texts.
        """
        self.store.write(_name(part.digest), _packed(part, profile, rows))

    def read(self, digest: str) -> tuple[Part, Profile]:
        """A part, and the profile of its texts.

        Raises:
            RecordError: it is not there, damaged, altered or another part; names the file.
        """
        name = f"{self.store.folder}/{_name(digest)}"
        try:
            content = self.store.read(_name(digest))
        except FileNotFoundError:
            raise RecordError(f"{name}: there is no such file") from None
        part, exact = _unpacked(content, name)
        # A file that was copied or renamed would count its texts twice.
        if part.digest != digest:
            raise RecordError(f"{name}: must be part {digest}, and is part {part.digest}")
        layers, numbers, _ = profile_file.unpacked(exact, name)
        return part, Profile(layers, **numbers)

    def profile(self, wanted: Iterable[tuple[str, int, int]] | None = None) -> Profile:
        """All parts merged, of which two are in memory at a time; failures are numbered through the corpus.

        Args:
            wanted: source, start and stop of every stretch that must be there; None: whatever is there.

        Raises:
            RecordError: a stretch is missing, or there twice, as its texts changed in between, or nobody wants it.
        """
        merged, parts, failures = Profile(), list[Part](), list[tuple[Part, Failure]]()
        for digest in self.digests():
            part, profile = self.read(digest)
            merged = merged.merge(replace(profile, failures=()))
            parts.append(part)
            failures += [(part, failure) for failure in profile.failures]
        parts.sort()
        self._check_once(parts)
        if wanted is not None:
            self._check_all(parts, set(wanted))
        starts = accumulate((part.texts for part in parts), initial=0)
        first = dict(zip((part.digest for part in parts), starts, strict=False))
        numbered = [item._replace(number=item.number + first[part.digest]) for part, item in failures]
        return replace(merged, failures=tuple(sorted(numbered)))

    def _check_once(self, parts: Sequence[Part]) -> None:
        """Raise RecordError where two parts have texts of the same place."""
        for one, other in pairwise(parts):
            if one.source == other.source and (other.start < one.stop or one.stop < 0):
                raise RecordError(
                    f"{self.store.folder}: {one.source!r} changed since a part of it was read: remove the part of its "
                    f"texts as they were, {_name(one.digest)} or {_name(other.digest)}, and go on"
                )

    def _check_all(self, parts: Sequence[Part], wanted: set[tuple[str, int, int]]) -> None:
        """Raise RecordError unless the parts are those of the stretches that are wanted."""
        there = {(part.source, part.start, part.stop) for part in parts}
        for stretch in sorted(there ^ wanted):
            fault = "is not in the corpus any more"
            if stretch in wanted:
                fault = "is missing"
            raise RecordError(
                f"{self.store.folder}: the part of {stretch[0]!r} from {stretch[1]} to {stretch[2]} {fault}"
            )


def _name(digest: str) -> str:
    return f"part-{digest}.parquet"


def _packed(part: Part, profile: Profile, rows: Sequence[TextRow]) -> bytes:
    """The Parquet file of a part."""
    arrow = require("pyarrow", extra="record")
    parquet = require("pyarrow.parquet", extra="record")
    text = {"row": "text", "source": part.source}
    table = [text | {"number": number} | vars(row) for number, row in enumerate(rows)]
    table += list(_heads(profile))
    exact = profile_file.packed(profile.layers, profile._numbers(), {"part": part.digest})
    table.append({"row": "profile", "profile": exact})
    schema = arrow.schema(
        [(name, arrow.type_for_alias(kind)) for name, kind in COLUMNS.items()],
        metadata={KEY: json.dumps(vars(part)).encode()},
    )
    content = io.BytesIO()
    parquet.write_table(
        arrow.Table.from_pylist(table, schema), content, compression="zstd", write_page_checksum=True
    )
    return content.getvalue()


# Of a part: rows "text" have the first five after `row`, rows "head" those up to the last, the row "profile" that one.
COLUMNS = {
    "row": "string",
    **{"source": "string", "number": "int64", "position": "int64", "digest": "string"},
    **{"error_type": "string", "error": "string"},
    **{"layer": "string", "kind": "string", "head": "int64", "statistic": "string"},
    **{"queries": "int64", "total": "float64", "texts": "int64"},
    **{"sum_of_means": "float64", "sum_of_squares": "float64"},
    "profile": "binary",
}


def _heads(profile: Profile) -> Iterator[dict[str, Any]]:
    """The sums of each head and statistic, which are added to join parts."""
    for (name, kind), layer in profile.layers.items():
        for index, statistic in enumerate(layer.names):
            columns = {
                "queries": layer.counts[index].tolist(),
                "total": floats(layer.totals[index]).tolist(),
                "texts": layer.texts[index].tolist(),
                "sum_of_means": floats(layer.means[index]).tolist(),
                "sum_of_squares": floats(layer.squares[index]).tolist(),
            }
            for head in range(len(layer.queries)):
                row = {"row": "head", "layer": name, "kind": kind, "head": head, "statistic": statistic}
                yield row | {key: values[head] for key, values in columns.items()}


def _unpacked(content: bytes, name: str) -> tuple[Part, bytes]:
    """What a part says of itself, and its exact profile."""
    arrow = require("pyarrow", extra="record")
    parquet = require("pyarrow.parquet", extra="record")
    try:
        # All of it, though only the profile is used, so that each page is held against its checksum.
        table = parquet.read_table(io.BytesIO(content), page_checksum_verification=True)
        part = Part(**json.loads(table.schema.metadata[KEY]))
        # Types as they were written: a hostile file may have any.
        kinds = tuple(type(value) for value in vars(part).values())
        (exact,) = [value for value in table.column("profile").to_pylist() if value is not None]
        if kinds != (str, int, int, str, int) or not isinstance(exact, bytes):
            raise ValueError("its numbers must be numbers")
        return part, exact
    # Whatever a damaged file makes of what this version expects.
    except (arrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{name}: is no part of a ledger, or damaged: {error}") from error
