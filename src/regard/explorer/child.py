"""The other side of `regard.explorer.worker`: answers requests within the child process."""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from regard.explorer.worker import Report

Run: TypeAlias = "Callable[[dict[str, Any], Report], dict[str, Any]]"
# Of the memory that is free when the process begins.
SHARE = 0.9


def serve(run: Run, memory: int | None = None) -> None:
    """Answer requests, one after the other, until standard input ends.

    Args:
        run: answers one request; what it raises becomes the reason why the request failed.
        memory: bytes that the process may take; None: most of what is free now.
    """
    # What libraries print must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _limit_memory(memory)
    writing = threading.Lock()

    def answer(line: dict[str, Any]) -> None:
        try:
            with writing:
                answers.write(json.dumps(line) + "\n")
                answers.flush()
        # The server has died, and this process must not before what it left is cleared away.
        except BrokenPipeError:
            listening.join()

    def report(progress: float | None, message: str) -> None:
        answer({"progress": progress, "message": message})

    # In a thread: the end of the server is heard of while a model runs.
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    listening = threading.Thread(target=_listen, args=(requests,), daemon=True)
    listening.start()
    while True:
        request = requests.get()
        try:
            answer({"done": run(request, report)})
        # Models and libraries raise what they please; the server has to hear of it.
        except Exception as error:
            answer({"failed": _why(error)})


def _listen(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Take requests while others are worked on; without a server there is nothing left to do."""
    folders = set()
    for line in sys.stdin:
        request = json.loads(line)
        folders.add(request["session"])
        requests.put(request)
    # The server has died without a farewell, or it would have killed this process: what it left is cleared away.
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())[:500]
    # Every library has an error of its own for it, or none.
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError"} or "allocate memory" in text or "bad_alloc" in text:
        return f"the model ran out of memory; take a shorter text ({text or type(error).__name__})"
    return text or type(error).__name__


def _limit_memory(memory: int | None) -> None:
    """Let allocations fail before the machine has no memory left; if it has none all the same, be the first to go."""
    try:
        import resource

        handle = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(handle, b"1000")
        os.close(handle)
        if memory is None:
            memory = int(_free() * SHARE)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.RLIM_INFINITY))
    # Other systems have other ways, and there the system's own limit holds.
    except (ImportError, OSError, ValueError):
        return


def _free() -> int:
    """Bytes of memory that can be had, as Linux says."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) << 10
    raise OSError("no MemAvailable in /proc/meminfo")
