"""A corpus: files of texts anywhere that fsspec reaches, cut into stretches that can be read apart from each other.

Knows files, sizes and stretches; how a stretch of a form is read is said in `regard.survey.forms`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from typing import Any

from regard.checks.arguments import shown, whole
from regard.errors import ArgumentError
from regard.files.stores import file_system, is_address
from regard.survey import forms


@dataclass(frozen=True, order=True)
class Stretch:
    """A part of one file.

    Attributes:
        source: the file's name below the corpus. start, stop: of the part, `stop` not included: bytes of a file of
            lines, rows of a table. Of a compressed file it is all, from 0 to -1.
    """

    source: str
    start: int
    stop: int


@dataclass(frozen=True)
class Corpus:
    """Texts in files: what a survey reads that is larger than memory. At most one stretch of it is in memory.

    A file ending in `.jsonl` or `.ndjson` has an object with a text in each line, one in `.parquet` or `.pq` a column
    of texts, one in `.arrow` too, as the library datasets saves them; of any other file each line that is not blank is
    a text. Files of lines may be compressed (`.gz`, `.bz2`, `.xz`, `.zst`): each is then one stretch, as nobody can
    begin in its middle.

    Attributes:
        location: a file, a folder, or a pattern with `*`; a path, or an address of fsspec such as `s3://bucket/texts`.
        column: the name of the texts in objects and tables.
        stretch: bytes of text that go into one shard of a ledger, about.

    Raises:
        ArgumentError: a wrong setting; where it is read, that nothing is there.

    Example:
        >>> from regard.survey import Corpus
        >>> Corpus("s3://bucket/texts/*.jsonl", column="body")
        Corpus(location='s3://bucket/texts/*.jsonl', column='body', stretch=1048576)
    """

    location: str
    column: str = "text"
    stretch: int = 1 << 20

    def __init__(self, location: str | PathLike[str], column: str = "text", stretch: int = 1 << 20) -> None:
        if not isinstance(location, str | PathLike) or not fspath(location):
            raise ArgumentError(f"location must be a path or an address, got {shown(location)}")
        if not isinstance(column, str) or not column:
            raise ArgumentError(f"column must be a name, got {shown(column)}")
        object.__setattr__(self, "location", fspath(location))
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "stretch", whole("stretch", stretch, 1))

    def absolute(self) -> Corpus:
        """The same for a process that was started in another folder."""
        if is_address(self.location):
            return self
        return Corpus(os.path.abspath(self.location), self.column, self.stretch)

    def stretches(self) -> Iterator[Stretch]:
        """All stretches, by the names of the files and in their order there: the same as long as the files are.

        Raises:
            ArgumentError: nothing is there, or a file cannot be read.
        """
        for name, path, size in self._files:
            for start, stop in forms.stretches(self._system, path, size, self.column, self.stretch):
                yield Stretch(name, start, stop)

    def read(self, stretch: Stretch) -> list[forms.Text]:
        """The texts of a stretch, those that cannot be read as their errors.

        Raises:
            ArgumentError: its file cannot be read.
        """
        paths = {name: path for name, path, _ in self._files}
        if stretch.source not in paths:
            raise ArgumentError(f"{self.location}: has no file {stretch.source!r} any more")
        return list(forms.read(self._system, paths[stretch.source], stretch.start, stretch.stop, self.column))

    @property
    def _system(self) -> Any:
        """The file system that has the files."""
        return file_system(self.location)

    @cached_property
    def _files(self) -> list[tuple[str, str, int]]:
        """Names below the corpus, paths and sizes of the files, sorted."""
        try:
            path = self._system._strip_protocol(self.location)
            if "*" in path:
                root = path.partition("*")[0].rpartition("/")[0]
                listed = self._system.glob(path, detail=True)
            elif self._system.isfile(path):
                root, listed = path.rpartition("/")[0], {path: self._system.info(path)}
            else:
                root, listed = path, self._system.find(path, detail=True)
        # Each protocol has errors of its own.
        except Exception as error:
            raise ArgumentError(f"the corpus {self.location!r} cannot be read: {error}") from error
        files = [
            (full.removeprefix(root).lstrip("/"), full, int(info["size"]))
            for full, info in listed.items()
            if info["type"] == "file"
        ]
        files = [file for file in sorted(files) if forms.counts(file[0])]
        if not files:
            raise ArgumentError(f"the corpus must have at least one file, and {self.location!r} has none")
        return files


def digest_of(stretch: Stretch, texts: list[forms.Text]) -> str:
    """The digest that names the shard of a stretch: of where it lies and of what is in it, 32 digits."""
    digest = hashlib.sha256(f"{stretch.source} {stretch.start} {stretch.stop} ".encode())
    for text in texts:
        digest.update(f"{text.position} {text.digest} ".encode())
    return digest.hexdigest()[:32]
