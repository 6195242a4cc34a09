"""Files that are there whole or not at all: what is written goes beside its place first, and is then renamed.

What is not finished lies in a folder `.regard-….tmp` beside its place, with a lock that ends with its process. So the
next write beside it knows what a killed process left, and clears that away, and nothing that still runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import IO

from regard.errors import RegardError

try:
    import fcntl
except ImportError:
    # Windows, where a file that is open cannot be removed: that is its lock.
    fcntl = None  # type: ignore[assignment]

UNFINISHED = re.compile(r"\.regard-[0-9a-f]{16}\.tmp")
LOCK = ".lock"
# Names of what this process has open: renaming something over the file behind them would cut them off.
OPEN = re.compile(r"/dev/(?P<name>stdout|stderr)|/(dev|proc/self)/fd/(?P<number>\d+)")
# Seconds for which a save waits for another one's renaming, which takes milliseconds.
PATIENCE = 60.0


def write(
    path: str | os.PathLike[str],
    content: str | bytes,
    *,
    error: type[RegardError] = RegardError,
    what: str = "file",
) -> None:
    """Write a file, whole or not at all; text as UTF-8. Arguments and errors are those of `replacing`."""
    with replacing(path, error=error, what=what) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], *, error: type[RegardError] = RegardError, what: str = "file"
) -> Iterator[Path]:
    """Within it, write the file that it gives; on exit that takes the place of `path` in one step.

    Whatever goes wrong within it, the file that was there stays as it was, and nothing else is left. The new file has
    the permissions of the old one, or without one those of any new file. A link is followed: the file that it leads to
    is replaced. What is no plain file, such as `/dev/null` or a pipe, is written to directly, once all is complete.

    Args:
        path: where the file goes; its folder is made if need be.
        error: raised for every fault of the file system. what: what that calls the file, such as "report".

    Example:
        with files.replacing("head.png") as unfinished:
            figure.savefig(unfinished)
    """
    path = Path(path)
    try:
        if _is_stream(path):
            with tempfile.TemporaryDirectory() as unfinished:
                yield Path(unfinished) / path.name
                with (Path(unfinished) / path.name).open("rb") as content, _stream(path) as stream:
                    shutil.copyfileobj(content, stream)
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_permission(target)
        with temporary(target.parent) as unfinished:
            yield unfinished / target.name
            publish(unfinished / target.name, target)
    except OSError as fault:
        raise error(
            f"the {what} must go where files can be written, got {str(path)!r}: {fault.strerror or fault}"
        ) from fault


@contextlib.contextmanager
def replacing_all(
    folder: Path, *, last: str, error: type[RegardError] = RegardError, what: str = "files"
) -> Iterator[Path]:
    """Within it, fill the folder that it gives; on exit its files take the place of those in `folder`, name by name.

    Each does so in one step, and only once all of them are complete; the file `last`, which is there and says what the
    others must be, goes last. Files of other names stay.

    Args:
        folder: where the files go; it is made if need be.
        last: the name of the last one. error, what: as for `replacing`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary(folder) as unfinished:
            yield unfinished
            with one_at_a_time(folder):
                names = sorted(path.name for path in unfinished.iterdir() if path.name not in (LOCK, last))
                for name in (*names, last):
                    publish(unfinished / name, folder / name)
    except OSError as fault:
        raise error(
            f"the {what} must go where files can be written, got {str(folder)!r}: {fault.strerror or fault}"
        ) from fault
    except Exception as fault:
        # A type of a package that need not be installed.
        if type(fault).__name__ != "SafetensorError":
            raise
        raise error(f"the {what} must go where files can be written, got {str(folder)!r}: {fault}") from fault


def check_writable(path: Path) -> None:
    """Whether a file can be written, before much work is done for it; it is neither made nor changed.

    Raises:
        OSError: it cannot.
    """
    if not _is_stream(path):
        target = Path(os.path.realpath(path))
        _check_permission(target)
        with temporary(target.parent):
            pass


@contextlib.contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """A folder within `folder` for files that are not finished, which is gone on exit with all that is in it.

    Those that killed processes left in `folder` are removed first.
    """
    clear(folder)
    unfinished, lock = _locked(folder)
    try:
        yield unfinished
    finally:
        os.close(lock)
        shutil.rmtree(unfinished, ignore_errors=True)


def publish(finished: Path, target: Path) -> None:
    """Move a file out of the folder of `temporary` to its place, once all of it is on the disk."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        # That of any new file here.
        mode = (finished.parent / LOCK).lstat().st_mode
    # Elsewhere permissions are those of the folder.
    if hasattr(os, "fchmod"):
        finished.chmod(S_IMODE(mode))
    _sync(finished)
    os.replace(finished, target)
    _sync(target.parent)


def publish_folder(finished: Path, target: Path) -> None:
    """Move a folder out of that of `temporary` to its place in one step, unless something is there already.

    Raises:
        FileExistsError: a folder with something in it, or a file, is there; it stays as it is.
        OSError: any other fault of the file system.
    """
    _sync(finished)
    try:
        os.rename(finished, target)
    except OSError as fault:
        if fault.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from fault
        raise
    _sync(target.parent)


@contextlib.contextmanager
def one_at_a_time(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Within it no other process is at the same place with the same folder, where the system has such locks.

    Args:
        folder: which folder. patience: how many seconds another process is waited for.

    Raises:
        TimeoutError: it did not end in that time.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + patience
        while _taken(handle):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    errno.ETIMEDOUT, "another process is writing into this folder", str(folder)
                )
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def clear(folder: Path) -> None:
    """Remove what killed processes left unfinished in a folder; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if UNFINISHED.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                _remove(Path(entry.path))


def _remove(unfinished: Path) -> None:
    """Remove an unfinished folder, if the process that made it has ended."""
    with contextlib.suppress(OSError):
        try:
            lock = os.open(unfinished / LOCK, os.O_RDWR)
        except FileNotFoundError:
            # Its maker ended before it locked it; one that is about to lock it makes another.
            unfinished.rmdir()
            return
        try:
            if _taken(lock, otherwise=True):
                return
            if fcntl is None:
                os.close(lock)
                (unfinished / LOCK).unlink()
            shutil.rmtree(unfinished, ignore_errors=True)
        finally:
            with contextlib.suppress(OSError):
                os.close(lock)


def _locked(folder: Path) -> tuple[Path, int]:
    """A new unfinished folder, and the handle that keeps it locked."""
    while True:
        unfinished = folder / f".regard-{secrets.token_hex(8)}.tmp"
        unfinished.mkdir(0o700)
        try:
            lock = os.open(unfinished / LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        except FileNotFoundError:
            # Cleared by another process in between.
            continue
        if _taken(lock) or not os.fstat(lock).st_nlink:
            os.close(lock)
            continue
        return unfinished, lock


def _taken(handle: int, *, otherwise: bool = False) -> bool:
    """Whether another one holds this lock; if not it is ours. `otherwise`: the answer where there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # A file system without locks.
        return otherwise
    return False


def _is_stream(path: Path) -> bool:
    """Whether a path leads to something that is written to, and cannot be replaced: a pipe, a terminal, a device.

    Raises:
        OSError: it leads nowhere, or to a folder.
    """
    if OPEN.fullmatch(os.path.abspath(path)):
        return True
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return not S_ISREG(mode)


def _stream(path: Path) -> IO[bytes]:
    """What a path leads to, open for what comes after all that was written to it so far."""
    stream = OPEN.fullmatch(os.path.abspath(path))
    if stream is None:
        return path.open("wb")
    sys.stdout.flush()
    return open(os.dup(int(stream["number"] or {"stdout": 1, "stderr": 2}[stream["name"]])), "wb")


def _check_permission(target: Path) -> None:
    """A file that may not be written may not be replaced either, though the system would let it be."""
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))


def _sync(path: Path) -> None:
    """Force a file, or where the system can do it the names in a folder, to the disk."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
