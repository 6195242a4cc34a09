"""Folders of whole files, on this machine or at any address that fsspec reaches, such as `s3://bucket/folder`.

Knows names and bytes. A file of a store is there whole or not at all: on a disk it is written under a temporary name
and renamed, and an object store shows an object once all of it has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from os import PathLike, fspath
from os.path import abspath
from pathlib import Path
from typing import Any

from regard.errors import RecordError, require
from regard.files import writing


def is_address(path: str | PathLike[str]) -> bool:
    """Whether a path is the address of another place than this machine's file system, `protocol://…`."""
    return isinstance(path, str) and "://" in path


@cache
def file_system(address: str) -> Any:
    """The file system of fsspec for a path or an address.

    Where its package for S3 or Google's storage is not installed, that of pyarrow serves, which reads the same
    variables of the environment.

    Raises:
        MissingPackageError: fsspec is not installed. ImportError: neither is what the protocol needs.
    """
    core = require("fsspec", extra="corpora").core
    try:
        return core.url_to_fs(address)[0]
    except ImportError:
        if not address.startswith(("s3://", "gs://", "gcs://")):
            raise
    # A pattern is no address to pyarrow; the file system is that of the bucket.
    bucket = "/".join(address.split("/")[:3])
    system, _ = require("pyarrow.fs", extra="corpora").FileSystem.from_uri(bucket)
    return require("fsspec.implementations.arrow", extra="corpora").ArrowFSWrapper(system)


@dataclass(frozen=True)
class Store:
    """A folder.

    Attributes:
        folder: its path, or an address of fsspec, whose options come from the environment or fsspec's configuration.
    """

    folder: str

    @classmethod
    def of(cls, folder: str | PathLike[str]) -> Store:
        """The store in a folder that need not be there yet."""
        if is_address(folder):
            return cls(fspath(folder).rstrip("/"))
        # A process that is handed the store may have been started in another folder.
        return cls(abspath(folder))

    def names(self) -> list[str]:
        """Names of the files that are there, sorted; none where the folder is not there.

        Raises:
            RecordError: the folder cannot be read.
        """
        try:
            if not is_address(self.folder):
                path = Path(self.folder)
                # What a killed process left unfinished is in folders.
                return sorted(item.name for item in path.iterdir() if item.is_file()) if path.exists() else []
            system, folder = self._system()
            # Others write too, and a listing is remembered.
            system.invalidate_cache()
            listed = [item for item in system.ls(folder, detail=True) if item["type"] == "file"]
            return sorted(item["name"].rsplit("/", 1)[-1] for item in listed if item["name"] != folder)
        except FileNotFoundError:
            return []
        # Each protocol has errors of its own.
        except Exception as error:
            raise RecordError(f"{self.folder}: cannot be read: {error}") from error

    def has(self, name: str) -> bool:
        """Whether a file is there now."""
        if not is_address(self.folder):
            return (Path(self.folder) / name).is_file()
        system, path = self._system()
        system.invalidate_cache()
        return bool(system.isfile(f"{path}/{name}"))

    def read(self, name: str) -> bytes:
        """What a file holds.

        Raises:
            FileNotFoundError: it is not there.
            RecordError: it cannot be read.
        """
        try:
            if not is_address(self.folder):
                return (Path(self.folder) / name).read_bytes()
            system, path = self._system()
            return bytes(system.cat_file(f"{path}/{name}"))
        except FileNotFoundError:
            raise
        except Exception as error:
            raise RecordError(f"{self.folder}/{name}: cannot be read: {error}") from error

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all, in the place of one of its name.

        Raises:
            RecordError: it cannot be written.
        """
        if not is_address(self.folder):
            writing.write(Path(self.folder) / name, content, error=RecordError)
            return
        try:
            system, path = self._system()
            try:
                # One object, which the other side takes whole or not at all.
                system.pipe_file(f"{path}/{name}", content)
            except FileNotFoundError:
                # A protocol with folders; those of an object store are parts of names.
                system.makedirs(path, exist_ok=True)
                system.pipe_file(f"{path}/{name}", content)
        except Exception as error:
            raise RecordError(f"{self.folder}/{name}: cannot be written: {error}") from error

    def _system(self) -> tuple[Any, str]:
        """The file system of the address, and the path in it."""
        return file_system(self.folder), str(file_system(self.folder)._strip_protocol(self.folder))
