"""The process in which models run: it may be killed at any moment, and may run out of memory, and the server lives on.

Requests and answers are lines of JSON on its standard input and output; nothing is pickled. Knows processes; what a
request means is for whoever wrote the program that is started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

from regard.errors import RegardError

# Its priority below the server's: a reader who moves a map must not wait for a model.
NICE = 10

Report = Callable[[float | None, str], None]
"""Takes how far a run is, from 0 to 1 or None where that is not known, and a sentence."""


class WorkerError(RegardError, RuntimeError):
    """A run that failed; the message says why."""


class Worker:
    """One child process, started when it is needed and kept, so that a model is loaded once.

    Args:
        command: what to start, the program first.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._busy = threading.Lock()

    def start(self) -> None:
        """Start the process, if it does not run: its imports take seconds, which a first request need not wait for."""
        with self._lock:
            self._started()

    def run(
        self, request: dict[str, Any], report: Report, is_wanted: Callable[[], bool] = lambda: True
    ) -> dict[str, Any]:
        """Hand over a request and wait for its answer, one request at a time.

        Args:
            request: what JSON can hold.
            report: is called with how far it is, from this thread.
            is_wanted: is asked once more before the request is handed over. After a "yes", `stop` stops the request.

        Raises:
            WorkerError: it failed, was stopped, is not wanted, or its process died.
        """
        with self._busy:
            # Asked under the lock of `stop`: whoever says no and then stops either is heard here, or kills the process.
            with self._lock:
                if not is_wanted():
                    raise WorkerError("the run is not wanted any more")
                process = self._started()
            return self._answer(process, request, report)

    def _answer(
        self, process: subprocess.Popen[str], request: dict[str, Any], report: Report
    ) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        # It died since the last request; what it says of that is its status.
        except OSError:
            raise WorkerError(_obituary(process)) from None
        # One line for each report, and the last one is the answer.
        for line in process.stdout:
            answer = json.loads(line)
            if "failed" in answer:
                raise WorkerError(answer["failed"])
            if "done" in answer:
                return answer["done"]
            report(answer.get("progress"), answer.get("message", ""))
        raise WorkerError(_obituary(process))

    def stop(self) -> None:
        """Kill the process, whatever it does: its memory is free again. The next run starts another one."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            # Who waits for its answer reads to the end first.
            with self._busy:
                _close(process)

    def _started(self) -> subprocess.Popen[str]:
        """The process, started where none runs; for whoever holds the lock."""
        if self._process is not None and self._process.poll() is not None:
            _close(self._process)
            self._process = None
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                # Ctrl-C in the terminal is for the server, which then stops it. No session of its own: Linux
                # shares the processors out among sessions first, whatever the priority within them.
                process_group=0,
            )
            # At once, as its imports alone take seconds of both.
            if hasattr(os, "setpriority"):
                with contextlib.suppress(OSError):
                    ours = os.getpriority(os.PRIO_PROCESS, 0)
                    os.setpriority(os.PRIO_PROCESS, self._process.pid, ours + NICE)
        return self._process


def _close(process: subprocess.Popen[str]) -> None:
    """Close the pipes of a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            # What was written and never read is lost with it.
            with contextlib.suppress(OSError):
                pipe.close()


def _obituary(process: subprocess.Popen[str]) -> str:
    """Why a process that said nothing more has ended."""
    # Its output has ended, so it is about to.
    status = process.wait()
    if status == -signal.SIGKILL:
        return "the model's process was killed, most likely because the machine ran out of memory: take a shorter text"
    if status < 0:
        return f"the model's process was ended by {signal.Signals(-status).name}"
    return f"the model's process ended with status {status}"
