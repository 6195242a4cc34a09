"""Checkpoints that are known to be whole: each is sealed when complete, and checked before it is used.

Knows files and digests; what is in them is Trainer's. A checkpoint without a seal was being written when its run died.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from regard.errors import TrainingError, require

SEAL = "seal.json"
FORMAT, VERSION = "regard-checkpoint", 1
NAME = re.compile(r"checkpoint-(\d+)")


class Sealer:
    """Listens to a run and seals each checkpoint, once `complete` has put into it what else belongs there."""

    def __init__(self, folder: Path, complete: Callable[[Path], None]) -> None:
        self.folder, self.complete = folder, complete

    def on_save(self, state: Any, model: nn.Module) -> None:
        """Every process has written its part when the first one seals."""
        together = require("accelerate", extra="train").PartialState()
        together.wait_for_everyone()
        if state.is_world_process_zero:
            checkpoint = self.folder / f"checkpoint-{state.global_step}"
            self.complete(checkpoint)
            seal(checkpoint)


def seal(checkpoint: Path) -> None:
    """Write the sizes and digests of all files of a checkpoint, after which it counts as whole."""
    files = {path.name: _state(path) for path in sorted(checkpoint.iterdir()) if _counts(path)}
    body = {"format": FORMAT, "version": VERSION, "files": files}
    unfinished = checkpoint / f"{SEAL}.tmp"
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(body, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, checkpoint / SEAL)


def steps(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by step, whole or not, the latest first."""
    found = {path: NAME.fullmatch(path.name) for path in folder.glob("checkpoint-*") if path.is_dir()}
    by_step = {int(match[1]): path for path, match in found.items() if match}
    return dict(sorted(by_step.items(), reverse=True))


def fault(checkpoint: Path) -> str | None:
    """Which file of a checkpoint is not what it was when it was sealed, and why; None for a whole one."""
    path = checkpoint / SEAL
    if not path.exists():
        return f"{path}: is missing, so the checkpoint was never completed"
    try:
        body = json.loads(path.read_bytes())
        files = {str(name): (each["bytes"], each["sha256"]) for name, each in body["files"].items()}
        known = (body["format"], body["version"]) == (FORMAT, VERSION)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{path}: is damaged: {error}"
    if not known:
        return f"{path}: is no seal that this Regard reads"
    for name, (size, digest) in files.items():
        if not (file := checkpoint / name).is_file():
            return f"{file}: is missing"
        found = _state(file)
        if found["bytes"] != size:
            return f"{file}: is cut short or altered: must have {size} bytes, got {found['bytes']}"
        if found["sha256"] != digest:
            return f"{file}: is altered: must have SHA-256 {digest!r:.20}…, got {found['sha256']:.18}…"
    return None


def latest(folder: Path) -> Path | None:
    """The latest whole checkpoint of a folder; None where no checkpoint was ever completed.

    A later one that is not whole is passed over, with a warning that names the file.

    Raises:
        TrainingError: there were complete checkpoints, and all of them are damaged.
    """
    faults: list[str] = []
    for checkpoint in steps(folder).values():
        reason = fault(checkpoint)
        if reason is None:
            if faults:
                warnings.warn(f"{faults[0]}. The run goes on from {checkpoint.name} instead", stacklevel=4)
            return checkpoint
        faults.append(reason)
    damaged = [reason for reason in faults if SEAL not in reason]
    if damaged:
        raise TrainingError(
            f"{folder}: a run resumes from a whole checkpoint, but there is none: {damaged[0]}"
        )
    if faults:
        warnings.warn(f"{faults[0]}. The run begins anew", stacklevel=4)
    return None


def _counts(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(SEAL)


def _state(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
