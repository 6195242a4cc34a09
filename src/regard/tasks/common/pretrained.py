"""The trained models that the distribution `regard-tasks` brings: where they lie, how they are loaded.

Knows no particular task.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from regard.errors import ModelError, require
from regard.tasks.common.catalogue import tasks
from regard.tasks.common.task import Card, read_card


def root() -> Path:
    """The folder of `regard-tasks`, which has one folder for each task.

    Raises:
        MissingPackageError: it is not installed.
    """
    return Path(str(resources.files(require("regard_tasks", extra="tasks"))))


def folder(task: str, model: str = "") -> Path:
    """Where a model's weights, card and history lie, if `regard-tasks` has it; without a model, the task's pages.

    Raises:
        MissingPackageError: `regard-tasks` is not installed.
    """
    return root() / task / model


def load(task: str, model: str) -> tuple[Any, Any]:
    """A trained model, in single precision, and its tokenizer.

    Raises:
        ArgumentError: there is no such task or model.
        MissingPackageError: `regard-tasks` is not installed.
        ModelError: it does not have the model.
    """
    (chosen,) = tasks(task, model)
    if not folder(task, model).exists():
        raise ModelError(
            f"the model must be one that Regard brings, and there is no {model!r} of {task}: regard train {task}"
        )
    return chosen.load(folder(task, model))


def card(task: str, model: str) -> Card:
    """What was measured of a trained model.

    Raises:
        MissingPackageError: `regard-tasks` is not installed.
        ModelError: it does not have the model.
        RecordError: the card is damaged or altered.
    """
    try:
        return read_card(folder(task, model))
    except FileNotFoundError:
        raise ModelError(f"there must be a card of {task}'s {model!r}, and the package brings none") from None
