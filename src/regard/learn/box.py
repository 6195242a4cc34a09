"""A box for code of strangers: bubblewrap (`bwrap`), with a system that can only be read, no network, one process.

What is not named here is not there: no home folder, no database, no other process, no variable of the environment. A
box is only had where a run in it has shown that. Knows processes; what runs in it is for whoever asks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.errors import RegardError
from regard.learn import child, seccomp, trespass
from regard.learn.seccomp import NoFilterError

# Folders of the system, where they are there; libraries and the loader's list of them.
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives")
# Within the box: the folder that can be written to, its bytes, and the files that are put there to be read.
FOLDER, BYTES, INSIDE = "/tmp", 16 << 20, "/box"
# Seconds that a run which shows what cannot be reached may take, on a busy machine.
PATIENCE = 60.0


class NoBoxError(RegardError):
    """There is no box on this machine; the message says why."""


@dataclass(frozen=True)
class Box:
    """A box in which a program runs.

    Attributes:
        program: the path of bwrap.
        readable: folders that can be read besides the system: Python's own, and those of its packages.
    """

    program: str
    readable: tuple[Path, ...]

    def start(
        self, python: Sequence[str], files: Sequence[Path], errors: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start Python in the box, with pipes for its input and output.

        Args:
            python, files: as for `command`. errors: where its errors go.
        """
        with seccomp.pipe() as handle:
            return subprocess.Popen(
                self.command(python, files, handle),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=(handle,),
                # Of bwrap itself, whose variables can be read in the box.
                env={},
            )

    def command(self, python: Sequence[str], files: Sequence[Path], seccomp_fd: int) -> list[str]:
        """What to start, the program first.

        Args:
            python: arguments of Python; a file of `files` is named as `inside` says.
            files: what can be read in the box, beyond the folders.
            seccomp_fd: a pipe that has the filter of system calls; the child must inherit it.
        """
        options = ["--unshare-user", "--unshare-all", "--disable-userns", "--cap-drop", "ALL"]
        options += ["--die-with-parent", "--new-session", "--clearenv", "--seccomp", str(seccomp_fd)]
        # As small as numbers need them; locale and home have no folder here.
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": FOLDER,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        variables |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        for name, value in variables.items():
            options += ["--setenv", name, value]
        for name in SYSTEM:
            path = Path(name)
            if path.is_symlink():
                options += ["--symlink", os.readlink(path), name]
            elif path.exists():
                options += ["--ro-bind", name, name]
        options += ["--proc", "/proc", "--dev", "/dev", "--size", str(BYTES), "--tmpfs", FOLDER]
        for folder in self.readable:
            options += ["--ro-bind", str(folder), str(folder)]
        for file in files:
            options += ["--ro-bind", str(file.resolve()), inside(file)]
        # Last, as folders are made in them before. Two lie in memory, of which all would else be free to take, and
        # settings of the whole system, which are below /proc, can be written to where the server's user is root.
        for name in ("/proc", "/dev", "/"):
            options += ["--remount-ro", name]
        options += ["--chdir", FOLDER]
        return [self.program, *options, "--", sys.executable, "-I", *python]


def inside(file: Path) -> str:
    """Where a file lies in the box."""
    return f"{INSIDE}/{file.name}"


def find(secrets: Sequence[Path] = ()) -> Box:
    """The box of this machine, after a run in it that has shown what cannot be reached.

    Args:
        secrets: files and folders that must not be reached, besides the home folder and the folder of work.

    Raises:
        NoBoxError: there is no bwrap, or it does not work here, or something was reached.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise NoBoxError("there is no bwrap: on Debian and Ubuntu it is the package bubblewrap")
    try:
        box = Box(program, readable())
        prove(box, [*secrets, Path.home(), Path.cwd()])
    except (NoFilterError, OSError) as error:
        raise NoBoxError(f"bwrap cannot be used here: {error}") from error
    return box


def secrets(database: str = "") -> list[Path]:
    """Files that code in a box must not reach: the database of progress, where it is one of SQLite.

    Args:
        database: its URL; "": that of this user.
    """
    # Without the extra `learn` there is no progress either.
    if importlib.util.find_spec("sqlalchemy") is None:
        return []
    from regard.learn.store import default_url
    from regard.learn.store.engine import parse

    url = parse(database or default_url())
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return []
    return [Path(url.database).absolute()]


def readable() -> tuple[Path, ...]:
    """The folders of Python and of its packages, but for those within the system's own.

    Raises:
        NoBoxError: one of them has the home folder in it, or the whole system.
    """
    packages = Path(np.__file__).parents[1]
    wanted = {Path(name).absolute() for name in (sys.prefix, sys.base_prefix, packages)}
    wanted |= {path.resolve() for path in wanted}
    folders: list[Path] = []
    for path in sorted(wanted, key=lambda path: len(path.parts)):
        if Path.home().resolve().is_relative_to(path):
            raise NoBoxError(f"Python must lie in a folder of its own, and {path} has the home folder in it")
        if not any(path.is_relative_to(other) for other in (*map(Path, SYSTEM), *folders)):
            folders.append(path)
    return tuple(folders)


def prove(box: Box, secrets: Sequence[Path]) -> None:
    """Run in the box what must not succeed, and NumPy, which must.

    Args:
        box: the box. secrets: files and folders that must not be reached.

    Raises:
        NoBoxError: something was reached, or nothing runs there.
    """
    # A server that is there, so that nothing but the box can keep a connection from it.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        question = {
            "files": [str(file) for path in secrets for file in _samples(path, box.readable)],
            "process": os.getpid(),
            "port": listening.getsockname()[1],
            "bytes": 4 * BYTES,
        }
        process = box.start([inside(TRESPASS), json.dumps(question)], [TRESPASS], subprocess.PIPE)
        try:
            content, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise NoBoxError(f"bwrap did not come to an end within {PATIENCE:.0f} s") from None
    try:
        reached = json.loads(content)["reached"]
    except (ValueError, KeyError):
        why = " ".join(errors.decode(errors="replace").split())
        raise NoBoxError(
            f"bwrap does not work here: {why[-300:] or f'status {process.returncode}'}"
        ) from None
    if reached:
        raise NoBoxError(f"bwrap must keep everything away, and code in it reached {'; '.join(reached):.300}")


TRESPASS = Path(trespass.__file__)
CHILD = Path(child.__file__)


def _samples(secret: Path, visible: Sequence[Path]) -> list[Path]:
    """What of a secret is looked for: the file, or of a folder a file in it that nothing else makes visible."""
    if not secret.is_dir():
        return [secret]
    samples = []
    for entry in sorted(secret.iterdir()):
        # A folder on the way to what can be read is there, and what else is in it is not.
        seen = any(folder.is_relative_to(entry) or entry.is_relative_to(folder) for folder in visible)
        if not seen and not entry.is_symlink():
            samples.append(entry)
    return samples[:20]
