"""Checkpoints that are known to be whole: each is sealed when complete, and checked before it is used.

What is in them is Trainer's. A checkpoint without a seal was being written when its run died.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from regard import files
from regard.errors import TrainingError, require
from regard.files.sealing import SEAL, broken, seal

NAME = re.compile(r"checkpoint-(\d+)")


class Sealer:
    """Listens to a run and seals each checkpoint, once `complete` has put into it what else belongs there."""

    def __init__(self, folder: Path, complete: Callable[[Path], None]) -> None:
        self.folder, self.complete = folder, complete

    def on_save(self, state: Any, model: nn.Module) -> None:
        """Every process has written its part when the first one seals."""
        together = require("accelerate", extra="train").PartialState()
        # A seal over files that another process is still writing would never fit.
        together.wait_for_everyone()
        if state.is_world_process_zero:
            checkpoint = self.folder / f"checkpoint-{state.global_step}"
            self.complete(checkpoint)
            # Last, as the seal is over the files that are there.
            seal(checkpoint)


def steps(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by step, whole or not, the latest first."""
    matches = {path: NAME.fullmatch(path.name) for path in folder.glob("checkpoint-*") if path.is_dir()}
    # By number: of names, checkpoint-1000 would come before checkpoint-200.
    by_step = {int(match[1]): path for path, match in matches.items() if match}
    return dict(sorted(by_step.items(), reverse=True))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Within it this process alone trains into a folder; what a run that died did not finish is removed first.

    Raises:
        TrainingError: another process does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            # Without patience, as the other run may take days.
            stack.enter_context(files.one_at_a_time(folder, patience=0))
        except TimeoutError:
            raise TrainingError(
                f"{folder}: one process must train into a folder at a time, and another one does: take another folder"
            ) from None
        # Only within the lock: outside, what looks unfinished may be what another process is writing.
        _clear(folder)
        yield


def _clear(folder: Path) -> None:
    """Remove the checkpoints that were being written when their run died, with all that libraries left in them."""
    for checkpoint in steps(folder).values():
        if not (checkpoint / SEAL).exists():
            shutil.rmtree(checkpoint, ignore_errors=True)


def latest(folder: Path) -> Path | None:
    """The latest whole checkpoint of a folder; None where no checkpoint was ever completed.

    A later one that is not whole is passed over, with a warning that names the file.

    Raises:
        TrainingError: there were complete checkpoints, and all of them are damaged.
    """
    faults: list[str] = []
    damaged: list[str] = []
    for checkpoint in steps(folder).values():
        reason = broken(checkpoint)
        if reason is None:
            if faults:
                warnings.warn(f"{faults[0]}. The run goes on from {checkpoint.name} instead", stacklevel=4)
            return checkpoint
        faults.append(reason)
        # With a seal it was complete once; without, its run died while it was being written, which is no damage.
        if (checkpoint / SEAL).exists():
            damaged.append(reason)
    if damaged:
        raise TrainingError(
            f"{folder}: a run resumes from a whole checkpoint, but there is none: {damaged[0]}"
        )
    if faults:
        warnings.warn(f"{faults[0]}. The run begins anew", stacklevel=4)
    return None
