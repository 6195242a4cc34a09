"""What does a watch cost where calls are many and small? Milliseconds for each call seen, above the plain pass.

`python -m benchmarks.watching --beside PATH` also times the sources in PATH (of an older version, built), turn by turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import common
from benchmarks.watched import SUBJECTS

TURNS = 15


@contextmanager
def child(sources: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that answers with one turn at a time, with these sources of Regard or those that are installed."""
    paths = [path for path in (sources, os.environ.get("PYTHONPATH")) if path]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.watched"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=common.ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def asked(process: subprocess.Popen[str], subject: str) -> tuple[float, float, int]:
    """One turn of a subject."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{subject}\n")
    process.stdin.flush()
    plain, watched, calls = json.loads(process.stdout.readline())
    return plain, watched, calls


def costs(turns: list[tuple[float, float, int]]) -> dict[str, float]:
    """Medians of the turns of one subject in one process."""
    plain, watched = (statistics.median(turn[i] for turn in turns) for i in (0, 1))
    calls = turns[0][2]
    return {
        "calls": calls, "plain_s": plain, "watched_s": watched, "ms_per_call": 1e3 * (watched - plain) / calls,
        "watched_over_plain": watched / plain,
    }  # fmt: skip


def measured(subject: str, processes: dict[str, subprocess.Popen[str]], turns: int = TURNS) -> dict[str, Any]:
    """The costs of one subject in every process, turn by turn; with two, what a call costs as a multiple."""
    taken: dict[str, list[tuple[float, float, int]]] = {name: [] for name in processes}
    for _ in range(turns):
        for name, process in processes.items():
            taken[name].append(asked(process, subject))
    found: dict[str, Any] = {name: costs(own) for name, own in taken.items()}
    if "beside" in found:
        found["cost_over_beside"] = found["regard"]["ms_per_call"] / found["beside"]["ms_per_call"]
    return found


def main() -> None:
    """Measure every subject, or those that are named, and write the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching")
    parser.add_argument("--beside", metavar="PATH", help="sources of another version, to take turns with")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="print this subject alone")
    given, _ = parser.parse_known_args()
    with ExitStack() as stack:
        processes = {"regard": stack.enter_context(child())}
        if given.beside:
            processes["beside"] = stack.enter_context(child(given.beside))
        figures = {name: measured(name, processes, given.turns) for name in given.only or SUBJECTS}
    if given.only:
        print(json.dumps(figures, indent=2))
        return
    common.write(
        "watching", "python -m benchmarks.watching",
        "a call of a small model costs at most half of what it cost in the version beside (cost_over_beside)", figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
