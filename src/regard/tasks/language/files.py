"""Python's source files: which are worth learning from, and which are held out.

Knows the file system; knows no tokens.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from regard.tasks.common.split import held_out

ONE_IN = 20  # files for each one that is held out

# Tests repeat themselves; encodings and pydoc_data are tables and manual pages; the rest is not its own.
SKIPPED = {
    *("test", "tests", "testing", "idle_test", "lib2to3", "encodings", "pydoc_data"),
    *("site-packages", "dist-packages", "lib-dynload", "_vendor", "__pycache__"),
}
SKIPPED_NAME = re.compile(r"_sysconfigdata.*|.*_pb2")


@dataclass(frozen=True)
class Source:
    """One source file: its path below the library's root, with forward slashes, and its text."""

    path: str
    text: str


def python_files(root: Path, skipped: Set[str]) -> list[Path]:
    """The Python files below a folder, sorted, without those in folders whose names are in `skipped`."""
    paths: list[Path] = []
    for folder, inner, names in os.walk(root):
        # In place, as os.walk then does not go into the others: site-packages alone has tens of thousands of files.
        inner[:] = set(inner) - skipped
        paths += [Path(folder) / name for name in names if name.endswith(".py")]
    return sorted(paths)


def sources(root: Path) -> list[Source]:
    """Every Python file below `root` that is worth learning from, sorted by path, each text once."""
    read: list[Source] = []
    seen: set[str] = set()
    for file in python_files(root, SKIPPED):
        relative = file.relative_to(root)
        if SKIPPED_NAME.fullmatch(file.stem) or relative.parts[0].startswith("config-"):
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            # Some old modules are written in another encoding.
            continue
        if text.strip() and text not in seen:
            seen.add(text)
            read.append(Source(relative.as_posix(), text))
    return read


def is_held_out(path: str) -> bool:
    """Whether the file at this path, below the library's root, is held out for measuring: one in twenty."""
    return held_out(path, ONE_IN)


def standard_library() -> tuple[list[Source], list[Source]]:
    """The standard library of the running Python: (files to train on, held-out files)."""
    files = sources(Path(sysconfig.get_path("stdlib")))
    train = [file for file in files if not is_held_out(file.path)]
    held = [file for file in files if is_held_out(file.path)]
    return train, held
