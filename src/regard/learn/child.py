"""The process in which a learner's function runs: takes inputs, calls it, and writes down what came back.

Knows NumPy and the standard library alone, so that it starts at once. It is run as a script for a file, and called in a
fork for a function of a notebook. The limits are against accidents, such as a loop without an end, not against attacks.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import linecache
import os
import runpy
import sys
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np

# Of processor time for all inputs together, as a busy machine must not fail a learner; bytes beyond what a process has.
SECONDS, MEMORY = 5, 1 << 30
# Of processor time for running the file itself: an import of torch takes a few seconds.
LOADING = 20
# For strangers, who would lift limits: seconds in all, bytes of addresses and of a file, files that are open, threads.
STRICT = "strict"
LONGEST, ADDRESSES, FILE, FILES, THREADS = 28, 6 << 30, 16 << 20, 64, 64
# Numbers of a result that are looked at, characters of what is printed and of an error's text.
NUMBERS, PRINTED, TEXT = 1_000_000, 300, 300


# --- values as JSON ----------------------------------------------------------------------------------------


def encode(value: Any) -> dict[str, Any]:
    """An array of numbers, or a plain number or truth, as JSON."""
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    return {"value": value}


def decode(written: Mapping[str, Any]) -> Any:
    """What `encode` wrote; arrays can be written to."""
    if "data" in written:
        flat = np.frombuffer(base64.b64decode(written["data"]), np.dtype(written["dtype"]))
        return flat.reshape(written["shape"]).copy()
    return written["value"]


def returned(value: Any) -> dict[str, Any]:
    """What a function gave back: its type, and its numbers where it has some."""
    described: dict[str, Any] = {"type": type(value).__name__}
    if value is None or isinstance(value, tuple):
        return described | {"length": len(value or ())}
    try:
        array = np.asarray(value)
    # A list of rows of unequal length, or whatever another library says of its own type.
    except Exception as error:
        return described | {"reason": str(error)[:TEXT]}
    described |= {"kind": str(array.dtype), "shape": list(array.shape)}
    if array.dtype.kind in "biuf" and array.size <= NUMBERS:
        described["array"] = encode(array)
    return described


class Printed(io.TextIOBase):
    """Takes the place of standard output: remembers the beginning of what is printed."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        if len(self.text) < PRINTED:
            self.text = (self.text + text)[:PRINTED]
        return len(text)

    def writable(self) -> bool:
        return True


# --- calls -------------------------------------------------------------------------------------------------


def call(
    function: Callable[..., Any], arguments: Mapping[str, Any], file: str | None = None
) -> dict[str, Any]:
    """Call a function with inputs of its own, and say what came of it, as JSON.

    Args:
        function: what is called, with the values in their order.
        arguments: the inputs by name; the function gets copies.
        file: the learner's, in which the line of an error is looked for.
    """
    copies = {
        name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()
    }
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            value = function(*copies.values())
            result: dict[str, Any] = {"returned": returned(value)}
    # Whatever a learner's function raises, an exit among them, is something to be explained.
    except BaseException as error:
        result = {"raised": failure(error, file)}
    result["changed"] = [name for name in copies if _differ(copies[name], arguments[name])]
    return result


def _differ(after: Any, before: Any) -> bool:
    if not isinstance(before, np.ndarray):
        return False
    return after.shape != before.shape or not np.array_equal(after, before)


def failure(error: BaseException, file: str | None) -> dict[str, Any]:
    """The type and text of an error, and the line of the learner's file that it came from."""
    line = None
    if isinstance(error, SyntaxError):
        line = error.lineno
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if file is not None and trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    source = linecache.getline(file, line).strip() if file and line else ""
    text = str(error.msg) if isinstance(error, SyntaxError) else str(error)
    return {"kind": type(error).__name__, "text": text[:TEXT], "line": line, "source": source}


def answer(
    function: Callable[..., Any], cases: list[dict[str, Any]], file: str | None, write: Callable[[dict], None]
) -> None:
    """Call a function with one case after the other, and write a line before and after each.

    Args:
        function: the learner's. cases: inputs by name. file: where it is written.
        write: takes the lines; the last case that began says on which one a process was killed.
    """
    printed = sys.stdout
    write({"loaded": True})
    for number, case in enumerate(cases):
        write({"began": number})
        write({"case": number} | call(function, case, file))
    if isinstance(printed, Printed):
        write({"printed": printed.text})
    write({"end": True})


def closed_in(handle: int, seconds: int = SECONDS) -> Callable[[dict], None]:
    """Limit this process, silence what it prints, and give the function that writes lines to `handle`."""
    # Libraries print past sys.stdout, and must not write among the lines.
    silent = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(silent, standard)
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(), Printed(), Printed()
    limit(seconds)

    def write(line: dict) -> None:
        content = json.dumps(line).encode() + b"\n"
        while content:
            content = content[os.write(handle, content) :]

    return write


def limit(seconds: int = SECONDS, memory: int = MEMORY) -> None:
    """Bound processor time and memory of this process, where the system can."""
    try:
        import resource
    # Windows, where the time on the clock is the only limit.
    except ImportError:
        return
    _lower(resource.RLIMIT_CORE, 0)
    # What the process took before it came here is not the learner's.
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(usage.ru_utime + usage.ru_stime) + 1
    _lower(resource.RLIMIT_CPU, spent + seconds)
    # Memory that can be written to, as Linux counts it: libraries that a file imports are mapped, and not counted.
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open("/proc/self/status") as status:
            held = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
        _lower(resource.RLIMIT_DATA, held + memory)


def _lower(which: int, limit: int) -> None:
    """Set what a process is warned or refused at; what it cannot get past stays as it is."""
    import resource

    _, last = resource.getrlimit(which)
    if last != resource.RLIM_INFINITY:
        limit = min(limit, last)
    resource.setrlimit(which, (limit, last))


def bound() -> None:
    """Set limits that this process cannot lift again: of processor time, memory, files and threads."""
    import resource

    for which, limit in {
        resource.RLIMIT_CPU: LONGEST,
        resource.RLIMIT_DATA: 2 * MEMORY,
        # Memory that is shared with nobody is counted here alone.
        resource.RLIMIT_AS: ADDRESSES,
        resource.RLIMIT_FSIZE: FILE,
        resource.RLIMIT_NOFILE: FILES,
        resource.RLIMIT_NPROC: THREADS,
        resource.RLIMIT_CORE: 0,
    }.items():
        resource.setrlimit(which, (limit, limit))


def main(path: str, name: str, seconds: str, strict: str = "") -> None:
    """Answer for the function `name` of a file: the cases come by standard input, the lines go to standard output."""
    if strict == STRICT:
        bound()
    cases = [{key: decode(value) for key, value in case.items()} for case in json.load(sys.stdin)]
    write = closed_in(os.dup(1), LOADING)
    try:
        names = runpy.run_path(path)
    except BaseException as error:
        write({"unreadable": failure(error, path)})
        return
    # What a file defines is looked at by name alone.
    function = names.get(name)
    if not callable(function):
        write(
            {"missing": sorted(key for key, value in names.items() if callable(value) and key[0] != "_")[:9]}
        )
        return
    limit(int(seconds))
    answer(function, cases, path, write)


if __name__ == "__main__":
    main(*sys.argv[1:])
