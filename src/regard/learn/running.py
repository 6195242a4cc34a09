"""Runs a learner's function in a child process, and reads what came of it. Knows nothing of what is right."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from regard.learn import child
from regard.learn.box import CHILD, Box, inside
from regard.learn.exercise import Case

# On the clock; processor time is limited to `child.SECONDS`, which a loop without an end meets first.
PATIENCE = 30.0
# Bytes of an answer that are read.
MOST = 64 << 20

State: TypeAlias = Literal["value", "raised", "time", "memory", "ended", "not run"]


@dataclass(frozen=True)
class Failure:
    """An error of the learner's code: its type, its text, and the line that it came from, where that is known."""

    kind: str
    text: str = ""
    line: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of one call.

    Attributes:
        state: how it ended.
        value: the array of numbers that came back; None where there is none.
        type: the name of the type that came back. kind: its numbers' dtype. shape: of its array.
        length: of a tuple. reason: why it is no array.
        failure: the error that was raised. changed: the names of inputs that were changed.
    """

    state: State
    value: np.ndarray | None = None
    type: str = ""
    kind: str = ""
    shape: tuple[int, ...] = ()
    length: int = 0
    reason: str = ""
    failure: Failure | None = None
    changed: tuple[str, ...] = ()


@dataclass
class Run:
    """What came of all calls.

    Attributes:
        outcomes: one for each case.
        printed: the beginning of what was printed.
        unreadable: the error that the file itself raised. functions: what it defines, where the wanted one is missing.
        guarded: whether there were limits.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    printed: str = ""
    unreadable: Failure | None = None
    functions: list[str] | None = None
    guarded: bool = True


def here(function: Callable[..., Any], cases: Iterable[Case]) -> list[Outcome]:
    """What comes of a function that is trusted, in this process."""
    return [_outcome(child.call(function, case.arguments)) for case in cases]


def file(
    path: Path,
    function: str,
    cases: Sequence[Case],
    *,
    seconds: int = child.SECONDS,
    patience: float = PATIENCE,
    box: Box | None = None,
) -> Run:
    """Run a function of a file in a fresh process.

    Args:
        path: the file. function: the name of the function in it. cases: its inputs.
        seconds: of processor time. patience: seconds on the clock. After either the process is killed.
        box: in which it runs, with limits that it cannot lift; None: as this user, with limits against accidents.
    """
    written = [{name: child.encode(value) for name, value in case.arguments.items()} for case in cases]
    with _started(path, function, seconds, box) as process:
        content, late = _asked(process, json.dumps(written).encode(), patience)
    try:
        return _read(content, len(cases), late or _ran_out_of_time(process.returncode))
    # Code in a box is a stranger's, who may write what no child of ours does.
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError, RecursionError):
        return Run([Outcome("ended"), *(Outcome("not run") for _ in cases[1:])])


@contextlib.contextmanager
def _started(path: Path, function: str, seconds: int, box: Box | None) -> Iterator[subprocess.Popen[bytes]]:
    """The process that runs a file; it has ended afterwards, whatever happens."""
    if box is not None:
        arguments = [inside(CHILD), inside(path), function, str(seconds), child.STRICT]
        process = box.start(arguments, [CHILD, path])
    else:
        # Threads of a linear algebra library take longer to start than these products, and much address space.
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
        process = subprocess.Popen(
            [sys.executable, "-P", child.__file__, os.path.abspath(path), function, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    try:
        yield process
    finally:
        # An interrupt of the waiting must not leave it running.
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _asked(process: subprocess.Popen[bytes], question: bytes, patience: float) -> tuple[bytes, bool]:
    """All that a process answers to a question, and whether it had to be ended when its time was over."""
    assert process.stdin is not None and process.stdout is not None
    deadline = time.monotonic() + patience
    # A process that has died says so by its status.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(question)
        process.stdin.close()
    content, late = _until_end(process.stdout.fileno(), patience)
    if len(content) > MOST:
        process.kill()
    if not late:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
    return content, late


def function(
    run: Callable[..., Any],
    cases: Sequence[Case],
    *,
    seconds: int = child.SECONDS,
    patience: float = PATIENCE,
) -> Run:
    """Run a function of this process in a fork of it; where there is no fork, here, without limits.

    Args:
        run: the function. cases: its inputs. seconds, patience: as for `file`.
    """
    code = getattr(run, "__code__", None)
    source = code.co_filename if code is not None else None
    arguments = [dict(case.arguments) for case in cases]
    # On macOS libraries of the system do not survive a fork.
    if not hasattr(os, "fork") or sys.platform == "darwin":
        outcomes = [_outcome(child.call(run, case, source)) for case in arguments]
        return Run(outcomes, guarded=False)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Of other threads, whose locks the child does not take: it calls the function, writes and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        _in_fork(run, arguments, source, writing, seconds)
    # Or the pipe would never end.
    os.close(writing)
    try:
        content, late = _until_end(reading, patience)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    return _read(content, len(cases), late or _ran_out_of_time(os.waitstatus_to_exitcode(status)))


def _in_fork(
    run: Callable[..., Any],
    arguments: list[dict[str, Any]],
    source: str | None,
    writing: int,
    seconds: int,
) -> None:
    """The child's side of a fork, which never returns."""
    try:
        write = child.closed_in(writing, seconds)
        # Threads of OpenMP do not come along: one that waits for them would wait for ever.
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        child.answer(run, arguments, source, write)
    finally:
        # Past what the parent has to do at its own end, such as writing what it has buffered.
        os._exit(0)


def _until_end(reading: int, patience: float) -> tuple[bytes, bool]:
    """What comes through a pipe, as much as is read, and whether it was still open when the time was over."""
    content, deadline = bytearray(), time.monotonic() + patience
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            chunk = os.read(reading, 1 << 16)
            if not chunk:
                return bytes(content), False
            content += chunk
            # More than any answer: it may have no end.
            if len(content) > MOST:
                return bytes(content), False
    return bytes(content), True


def _ran_out_of_time(status: int) -> bool:
    signals = [getattr(signal, name, 0) for name in ("SIGXCPU", "SIGKILL")]
    # As a shell says it, where the process ran in a box; killed is who took no notice of the first.
    return status == -signals[0] or status in {128 + one for one in signals}


def _read(content: bytes, count: int, late: bool) -> Run:
    """The lines of a child as a run of `count` cases."""
    run, finished, loaded, began = Run(), False, False, 0
    outcomes: dict[int, Outcome] = {}
    # A line that a kill cut short has no end.
    for text in content[: content.rfind(b"\n") + 1].splitlines():
        line = json.loads(text)
        if "unreadable" in line:
            run.unreadable = _failure(line["unreadable"])
        began = line.get("began", began)
        run.functions = line.get("missing", run.functions)
        run.printed = line.get("printed", run.printed)
        loaded = loaded or "loaded" in line
        finished = finished or "end" in line or "unreadable" in line or "missing" in line
        if "case" in line:
            outcomes[line["case"]] = _outcome(line)
    if not loaded and late:
        run.unreadable = Failure("TimeoutError", "it did not come to an end")
    if not finished and began not in outcomes:
        outcomes[began] = Outcome("time" if late else "ended")
    run.outcomes = [outcomes.get(number, Outcome("not run")) for number in range(count)]
    return run


def _failure(written: Mapping[str, Any]) -> Failure:
    """An error as a child wrote it down; what is of another type was not written by one of ours."""
    line = written["line"]
    if line is not None:
        line = int(line)
    kind, text, source = (str(written[name])[: child.TEXT] for name in ("kind", "text", "source"))
    return Failure(kind, text, line, source)


def _outcome(line: Mapping[str, Any]) -> Outcome:
    """What one call wrote down."""
    changed = tuple(line["changed"])
    if "raised" in line:
        failure = _failure(line["raised"])
        state: State = "memory" if failure.kind.endswith("MemoryError") else "raised"
        return Outcome(state, failure=failure, changed=changed)
    back = line["returned"]
    value = child.decode(back["array"]) if "array" in back else None
    return Outcome(
        "value",
        value,
        back["type"],
        back.get("kind", ""),
        tuple(back.get("shape", ())),
        back.get("length", 0),
        back.get("reason", ""),
        changed=changed,
    )
