"""Ctrl-C in the command line: it ends in silence with status 130, as shells have it, from the first import on.

Imported before anything else of the package, because the imports themselves take a second or two. In any other process
than `regard …` and `python -m regard …` it does nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from types import FrameType
from typing import Any

STATUS = 128 + signal.SIGINT
NAMES = ("regard", "regard.exe")


class _Interrupt:
    """Whether one came within `raised`. A plain flag: a handler that waits for a lock may wait for itself."""

    came = False


def is_command() -> bool:
    """Whether this process is the command line: its script, or the package run as a module."""
    program = next(iter(sys.argv), "")
    # Until the package is imported; then it is the path of its `__main__`.
    if program == "-m":
        # sys.argv has only "-m" while the module is being looked for.
        arguments = sys.orig_argv
        return "-mregard" in arguments or ("-m", "regard") in pairwise(arguments)
    return os.path.basename(program) in NAMES


def end_quietly() -> None:
    """From now on an interrupt ends the process at once. One that ignores interrupts, as in the background, goes on.

    No exception is raised, as imports may turn one into another or lose it, and nothing is left to be tidied up yet.
    """
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
        # Last of all, when the work is done: Python gives handlers up before it ends, and would die of the signal.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Within it an interrupt is a KeyboardInterrupt again, so that what has begun is undone.

    Whatever becomes of it on its way up, swallowed or turned into another exception, it leaves here as it came. One
    that comes within an import, where that is common and nothing is to be undone, ends the process at once.
    """
    # Another handler, of a notebook or a test, is somebody else's: it stays.
    before = signal.getsignal(signal.SIGINT)
    if before is not _end:
        yield
        return
    _Interrupt.came = False

    def interrupt(_signal: int, frame: FrameType | None) -> None:
        # The second Ctrl-C does not wait for what the first one is undoing.
        if _Interrupt.came or _imports(frame):
            os._exit(STATUS)
        _Interrupt.came = True
        raise KeyboardInterrupt

    # In `__del__` and callbacks Python prints exceptions and goes on, an interrupt too.
    unraisable = sys.unraisablehook
    sys.unraisablehook = _lost
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = unraisable
        if _Interrupt.came:
            # Python remembers an interrupt that left an exec of text, and dies of it at its end; the next exec forgets.
            exec("")
            raise KeyboardInterrupt


def check() -> None:
    """Raise the interrupt again that a library has swallowed: for loops that would otherwise go on for ever."""
    if _Interrupt.came:
        raise KeyboardInterrupt


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(STATUS)


def _imports(frame: FrameType | None) -> bool:
    """Whether a frame is within an import."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def _lost(unraisable: Any) -> None:
    """An interrupt that no caller can see, as it came while an object was taken down, ends the process all the same."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(STATUS)
    sys.__unraisablehook__(unraisable)


if is_command():
    end_quietly()
