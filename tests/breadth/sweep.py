"""Every subject in a child process of its own, with a limit of time and of memory; results as one line of JSON each.

Knows processes; what is done in them is in `modes.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS, MEMORY = 40, 6 << 30


def child(work: Callable[[], dict[str, Any]], out: int) -> None:
    """Run in the child: the result goes into a pipe, what is printed goes nowhere."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        found = work()
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = {
            "verdict": "harness",
            "reason": f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"[:600],
        }
    with os.fdopen(out, "w") as pipe:
        pipe.write(json.dumps(found))
    os._exit(0)


class Children:
    """A few children at a time."""

    def __init__(self, count: int, seconds: float = SECONDS) -> None:
        self.count, self.seconds = count, seconds
        self.running: dict[int, tuple[str, int, float]] = {}

    def start(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        read, write = os.pipe()
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            os.close(read)
            child(work, write)
        os.close(write)
        self.running[read] = name, process, time.monotonic()

    def wait(self) -> list[tuple[str, dict[str, Any]]]:
        """Results of those that are over, once one is."""
        done: list[tuple[str, dict[str, Any]]] = []
        while self.running and not done:
            ready, _, _ = select.select(list(self.running), [], [], 0.2)
            for pipe in list(self.running):
                name, process, started = self.running[pipe]
                late = time.monotonic() - started > self.seconds
                if pipe not in ready and not late:
                    continue
                if pipe not in ready:
                    os.kill(process, signal.SIGKILL)
                with os.fdopen(pipe) as stream:
                    text = stream.read()
                _, status = os.waitpid(process, 0)
                del self.running[pipe]
                found: dict[str, Any] = {
                    "verdict": "died",
                    "reason": f"after {self.seconds} s" if late else f"status {status}",
                }
                with contextlib.suppress(json.JSONDecodeError):
                    found = json.loads(text)
                done.append((name, found | {"seconds": round(time.monotonic() - started, 2)}))
        return done
