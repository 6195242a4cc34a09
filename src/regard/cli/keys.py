"""Single keys from a terminal, without waiting for a line to end; from a pipe, its characters."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

# Waits for a key, so many seconds at most.
Key: TypeAlias = "Callable[[float], str]"
# What comes when standard input has ended: Ctrl-D.
END = "\x04"
# Seconds between two looks at a keyboard that cannot be waited for.
EVERY = 0.05


@contextlib.contextmanager
def single() -> Iterator[Key]:
    """Within it, a function that waits for a key, so many seconds at most; "" where none came.

    The terminal is as before on exit, and echoes no keys until then. Ctrl-C interrupts as ever.
    """
    try:
        import termios
        import tty
    except ImportError:
        yield _windows
        return
    if not sys.stdin.isatty():
        yield _posix
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        # Unlike raw mode this leaves Ctrl-C and the ends of printed lines alone.
        tty.setcbreak(handle)
        yield _posix
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _posix(seconds: float) -> str:
    handle = sys.stdin.fileno()
    if not select.select([handle], [], [], seconds)[0]:
        return ""
    # Keys such as arrows send several characters: the rest of them is no command.
    content = os.read(handle, 1 if not sys.stdin.isatty() else 64)
    if not content:
        return END
    return content.decode(errors="replace")[0]


def _windows(seconds: float) -> str:
    import msvcrt

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if msvcrt.kbhit():  # type: ignore[attr-defined,unused-ignore]
            return str(msvcrt.getwch())  # type: ignore[attr-defined,unused-ignore]
        time.sleep(EVERY)
    return ""
