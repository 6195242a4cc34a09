"""The histories that `regard explore` offers: those that were named, and those of the tasks' trained models."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.history import losses_of
from regard.record.history import History
from regard.tasks.common import pretrained
from regard.tasks.common.catalogue import NAMES
from regard.training.monitor import FILE
from regard.web.history import Training

if TYPE_CHECKING:
    from regard.explorer.trainings import Trainings


def shelve(trainings: Trainings, named: Mapping[str, Path]) -> None:
    """Offer histories.

    Args:
        trainings: gets them.
        named: name → file, of those that are read now, so that one that is damaged is told before the page opens.

    Raises:
        RecordError: one of them is no history, or is damaged.
    """
    for name, path in named.items():
        training = read(path, name, f"import regard as rg\n\nhistory = rg.load({str(path)!r})")
        trainings.add(name, partial(_same, training))
    # Not read before somebody looks: a page that opens must not wait for all of them.
    for title, path in trained().items():
        task, _, model = title.partition(", ")
        code = [
            "import regard as rg",
            "from regard.tasks.common import pretrained",
            "",
            f"history = rg.load(pretrained.folder({task!r}, {model!r}) / {FILE!r})",
        ]
        trainings.add(title, partial(read, path, title, "\n".join(code)))


def trained() -> dict[str, Path]:
    """Title → file, of the histories that the package of the tasks brings; none where it is not installed."""
    if importlib.util.find_spec("regard_tasks") is None:
        return {}
    # By their folders alone: recipes import transformers, which takes seconds.
    files = [path for task in NAMES for path in sorted(pretrained.folder(task).glob(f"*/{FILE}"))]
    return {f"{path.parent.parent.name}, {path.parent.name}": path for path in files}


def read(path: Path, title: str, code: str) -> Training:
    """A history from its file, with the losses of the card beside it.

    Raises:
        RecordError: one of them is damaged.
    """
    return Training(title, History.load(path), losses_of(path.parent), code)


def _same(training: Training) -> Training:
    return training
