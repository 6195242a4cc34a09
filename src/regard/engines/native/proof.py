"""Whether a build computes right on this processor: found out in a child process, for a build that does not would take
the user's work with it. What was found is written down in the user's cache folder, so a machine pays for it once.

It knows how a child is run and where verdicts lie; it does not know which build to choose.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# For what takes milliseconds: a machine may be busy, but not that busy.
SECONDS = 60.0
CPU_FACTS = Path("/proc/cpuinfo")
CHANGING = {"processor", "cpu mhz", "core id", "apicid", "initial apicid", "physical id", "bogomips"}

# What the child runs, without torch: its arguments are the library, the build's number, and OpenMP's library.
PROGRAM = """
import ctypes, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
except (ImportError, OSError, ValueError):
    pass
for runtime in sys.argv[3:]:
    ctypes.CDLL(runtime, ctypes.RTLD_GLOBAL)
print(ctypes.CDLL(sys.argv[1]).regard_prove(int(sys.argv[2])))
"""
# As regard_prove of native/dispatch.cpp answers.
RIGHT, WRONG = "0", "3"

# What ends a program that went wrong. Other signals, as SIGKILL, come from outside and say nothing of it.
FATAL = ("SIGILL", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS")


@dataclass(frozen=True)
class Verdict:
    """What is known of a build on this processor."""

    # It may be chosen.
    good: bool
    # "proved", "died of SIGILL", …
    said: str
    # Another try would say the same.
    lasting: bool = True


PROVED = Verdict(True, "proved")


@cache
def prove(library: str, build: str, number: int) -> Verdict:
    """What the library's build of this name and number does here: asked once in a process, proved once on a machine.

    Two threads that ask at once both prove it, and two processes both write it down: they find the same.
    """
    entry, digest = _entry(library, build), _digest(library)
    known = _read(entry, digest)
    if known is None:
        known = _run(library, number)
        if known.lasting:
            _write(entry, digest, known)
    return known


def processor() -> str:
    """The processor's name."""
    for line in _facts():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    # Processors by ARM have no name in /proc/cpuinfo.
    return platform.machine()


def folder() -> Path | None:
    """Where verdicts lie; None where the user has no folder for such things."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    # A path that is not absolute is to be ignored, says the XDG base directory specification.
    if os.path.isabs(cache_home):
        return Path(cache_home) / "regard"
    try:
        return Path.home() / ".cache" / "regard"
    except RuntimeError:
        # nobody's home.
        return None


# --- the child ---------------------------------------------------------------------------------------------


def _run(library: str, number: int) -> Verdict:
    command = _command(library, number)
    if command is None:
        return Verdict(True, "not proved: no Python was found that could do it", lasting=False)
    try:
        # a session of its own: Ctrl-C in the terminal is for the parent; passive: no thread spins while it waits
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"},
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Verdict(False, f"did not finish within {SECONDS:g} s", lasting=False)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        # a sandbox, WebAssembly, an interpreter that is shutting down: the choice is made as the processor says
        return Verdict(True, f"not proved: no child process could be made: {error}", lasting=False)
    return _judge(done.returncode, done.stdout.decode(errors="replace").strip())


def _judge(status: int, answer: str) -> Verdict:
    fatal = {getattr(signal, name): name for name in FATAL if hasattr(signal, name)}
    if -status in fatal:
        return Verdict(False, f"died of {fatal[signal.Signals(-status)]}")
    if status == 0 and answer == RIGHT:
        return PROVED
    if status == 0 and answer == WRONG:
        return Verdict(False, "gave wrong numbers")
    # the child could not load the library, memory ran out, or somebody ended it: nothing was found out
    return Verdict(True, f"not proved: its process ended with status {status}", lasting=False)


def _command(library: str, number: int) -> list[str] | None:
    """The child's command line; None where there is no interpreter to run it."""
    python = _interpreter()
    if python is None:
        return None
    return [python, "-I", "-S", "-c", PROGRAM, library, str(number), *_openmp()]


def _interpreter() -> str | None:
    """A Python of this version. `sys.executable` may be an application that embeds one, which must not be started."""
    if getattr(sys, "frozen", False):
        return None
    executable = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, os.path.join(sys.base_exec_prefix, "bin", executable)):
        if path and os.path.basename(path).startswith("python") and os.access(path, os.X_OK):
            return path
    return None


def _openmp() -> list[str]:
    """The OpenMP library of this process, which torch brings and the system may lack; empty where it does not say."""
    try:
        mapped = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    files = dict.fromkeys(line.partition("/")[2] for line in mapped if "omp" in line)
    return [
        f"/{file}" for file in files if os.path.basename(file).startswith(("libgomp", "libomp", "libiomp"))
    ]


# --- what was found, on disk -------------------------------------------------------------------------------


def _facts() -> list[str]:
    """What the system says of the first processor, without what changes from hour to hour."""
    try:
        with CPU_FACTS.open() as lines:
            block = []
            for line in lines:
                if not line.strip():
                    break
                block.append(line.rstrip())
    except OSError:
        return []
    return [line for line in block if line.partition(":")[0].strip().lower() not in CHANGING]


def _digest(library: str) -> str:
    """The library's content, as a number."""
    try:
        with open(library, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _entry(library: str, build: str) -> Path | None:
    """The file of a verdict: one for each library's place, processor, kernel and build, so that they do not pile up."""
    cache = folder()
    if cache is None:
        return None
    machine = [library, platform.machine(), platform.release(), *_facts()]
    mark = hashlib.sha256("\0".join(machine).encode()).hexdigest()[:16]
    return cache / f"native-{mark}-{build}.json"


def _read(entry: Path | None, digest: str) -> Verdict | None:
    """The verdict that was written down for a library of this content; None: there is none that can be read."""
    if entry is None or not digest:
        return None
    try:
        content = json.loads(entry.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("library") != digest:
        return None
    good, message = content.get("good"), content.get("said")
    if not isinstance(good, bool) or not isinstance(message, str):
        return None
    return Verdict(good, message)


def _write(entry: Path | None, digest: str, known: Verdict) -> None:
    """Writes beside and renames; where nothing can be written, the process alone remembers."""
    if entry is None or not digest:
        return
    text = json.dumps({"library": digest, "good": known.good, "said": known.said})
    beside = ""
    try:
        entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, beside = tempfile.mkstemp(prefix=f".{entry.name}-", dir=entry.parent)
        with os.fdopen(number, "w") as file:
            file.write(text)
        os.replace(beside, entry)
    except OSError:
        if beside and os.path.exists(beside):
            os.unlink(beside)
