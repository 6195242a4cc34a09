"""The compiled library: where it lies, why it is not there, which of its builds is used here. Knows no tensors.

It is a plain C library without any of torch's symbols, so one file serves every version of torch. It runs on torch's
OpenMP pool: torch has loaded its OpenMP library before, and the system loads one of that name only once.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path

import torch  # noqa: F401  before the library: see above

from regard.engines.native import abi
from regard.engines.native.proof import Verdict, folder, processor, prove
from regard.errors import EngineError

# Names the build to use: "amx", "avx512_bf16", "avx512", "avx2", "baseline".
ENVIRONMENT = "REGARD_CPU"
FAILURES = {1: "memory ran out", 2: "this processor cannot run that build"}
# A child process may start in another folder.
FOLDER = Path(__file__).absolute().parent


def library() -> ctypes.CDLL | None:
    """The library, or None where there is none that fits this code: `why_not` says why."""
    return _opened()[0]


def why_not() -> str | None:
    """Why there is no library and the native engine refuses everything; None: there is one."""
    return _opened()[1]


@cache
def _opened() -> tuple[ctypes.CDLL | None, str | None]:
    files = sorted(FOLDER.glob("_native.*"))
    if not files:
        return None, "it was not built: install a C++ compiler with OpenMP, then Regard again from source"
    try:
        loaded = ctypes.CDLL(str(files[0]))
        loaded.regard_size.restype, loaded.regard_build.restype = ctypes.c_int64, ctypes.c_char_p
    except (OSError, AttributeError) as error:
        return None, f"its library does not load: {error}"
    # A library of another age would read the structures at the wrong places, and crash or lie.
    expected = [*map(ctypes.sizeof, abi.STRUCTURES), 0]
    sizes = [loaded.regard_size(i) for i in range(len(expected))]
    if sizes != expected or not hasattr(loaded, "regard_prove"):
        return None, "its library was built for another version of Regard: install Regard again from source"
    return loaded, None


@cache
def builds() -> dict[str, tuple[int, bool]]:
    """Builds by name, best first: number, and whether this processor runs it."""
    loaded, runs = library(), ctypes.c_int()
    by_name: dict[str, tuple[int, bool]] = {}
    while loaded is not None and (name := loaded.regard_build(len(by_name), ctypes.byref(runs))) is not None:
        by_name[name.decode()] = (len(by_name), bool(runs.value))
    return by_name


def verdict(name: str) -> Verdict:
    """What a build of this name, which this processor should run, did in its trial."""
    loaded = library()
    assert loaded is not None, "only a library that is there has builds"
    return prove(loaded._name, name, builds()[name][0])


def build() -> str:
    """Name of the build in use: the best that computes right here, or the one that REGARD_CPU names.

    The first call runs each candidate in a child process, some tens of milliseconds, until one is right.

    Raises:
        EngineError: REGARD_CPU names a build that is not there, does not run here or is wrong here; none is right.
    """
    running = [name for name, (_, runs) in builds().items() if runs]
    wanted = os.environ.get(ENVIRONMENT)
    if not wanted:
        chosen = _chosen(running)
        if chosen is None:
            raise EngineError(f"the native engine must have a build that runs here: {why_no_build()}")
        return chosen
    # Named, it is never replaced in silence: whoever names a build wants to know that it is that one.
    if wanted not in running:
        raise EngineError(
            f"{ENVIRONMENT} must be one of {running}, which this processor runs, got {wanted!r}"
        )
    if not verdict(wanted).good:
        raise EngineError(
            f"{ENVIRONMENT} must name a build that computes right on this processor ({processor()}), got {wanted!r}: "
            f"in a trial it {verdict(wanted).said}. Without {ENVIRONMENT} the best that does is taken"
        )
    return wanted


def why_no_build() -> str | None:
    """Why no build may be chosen here, though there is a library; None: one may, or REGARD_CPU names one."""
    running = [name for name, (_, runs) in builds().items() if runs]
    if os.environ.get(ENVIRONMENT) or _chosen(running) is not None:
        return None
    tried = ", ".join(f"{name} {verdict(name).said}" for name in running)
    return f"none of its builds computes right on this processor ({processor()}): {tried}"


def _chosen(running: list[str]) -> str | None:
    for name in running:
        if verdict(name).good:
            return name
        _warn(name, verdict(name).said)
    return None


@cache
def _warn(name: str, failure: str) -> None:
    again = f"To try it again, remove what is known of it: {folder()}/native-*-{name}.json"
    warnings.warn(
        f"the build {name!r} of the native engine {failure} in a trial on this processor ({processor()}), and the next "
        f"best is used instead: please report it. {again}",
        RuntimeWarning,
        stacklevel=2,
    )


def run(function: str, *structures: ctypes.Structure) -> None:
    """Call a function of the library with its structures; the interpreter's lock is free meanwhile.

    Raises:
        EngineError: no build runs, or memory ran out.
    """
    loaded = library()
    assert loaded is not None, "an engine that is not there refuses before it is called"
    failed = getattr(loaded, function)(builds()[build()][0], *(ctypes.byref(s) for s in structures))
    if failed:
        raise EngineError(f"the native engine could not run: {FAILURES[failed]}")
