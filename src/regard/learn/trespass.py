"""Tries what code in a box must not be able to do, and says what it could. Knows the standard library alone.

It is run as a script, with a question in JSON; outside of a box nearly everything succeeds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial

# Seconds until a connection is taken for refused.
PATIENCE = 2.0


def attempts(question: dict) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is tried: its name, and a function that raises OSError where it is refused."""
    for file in question["files"]:
        yield f"the file {file}", partial(os.stat, file)
    yield "the server's process", lambda: os.stat(f"/proc/{question['process']}/environ")
    yield "the server's port", lambda: _connect(question["port"])
    yield "another process", _fork
    yield "a namespace of its own", _unshare
    yield "the system's folders", lambda: os.close(os.open("/usr/regard", os.O_CREAT | os.O_WRONLY))
    yield "the box's own folder", lambda: os.mkdir("/regard")
    yield "the system's settings", lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    yield "much of the disk", lambda: _fill(question["bytes"])


def _connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()


def _fork() -> None:
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)


def _unshare() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    # A namespace of users, in which a process has all rights over the others that it makes.
    if library.unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _fill(size: int) -> None:
    name = "/tmp/regard-fill"
    try:
        handle = os.open(name, os.O_CREAT | os.O_WRONLY)
        try:
            for _ in range(size >> 20):
                os.write(handle, bytes(1 << 20))
        finally:
            os.close(handle)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def reached(question: dict) -> list[str]:
    """The names of what succeeded."""
    names = []
    for name, attempt in attempts(question):
        with contextlib.suppress(OSError):
            attempt()
            names.append(name)
    return names


def main(question: str) -> None:
    """Say what could be reached, once NumPy has been imported, without which a box is of no use."""
    import numpy as np

    assert np.arange(3).sum() == 3, "NumPy must add up"
    sys.stdout.write(json.dumps({"reached": reached(json.loads(question))}))


if __name__ == "__main__":
    main(sys.argv[1])
